"""The C++ structs that native kernels read, in the order of their headers. Fields point to what their comments say.

This file is written by `scripts/write_structs.py` from kernels/cpu/source.
"""

from .library import Bytes, Float32, Int32, Int64, Pointer, Struct, fields_of_annotations

ACTIVATION = {"silu": 0, "gelu": 1, "gelu_tanh": 2, "relu": 3, "relu2": 4, "gelu_sigmoid": 5}
ROTATION = {"none": 0, "halves": 1, "pairs": 2}
KV_FORMAT = {"fp32": 0, "fp16": 1, "bf16": 2, "int8": 3, "uint4": 4}
SOURCE_TYPE = {"float32": 0, "float16": 1, "bfloat16": 2, "float8": 3}
SCORE = {"softmax": 0, "sigmoid": 1, "softmax_of_chosen": 2}


@fields_of_annotations
class Quantized(Struct):
    """quantize.hpp"""

    values: Pointer  # int8 [rows, width], in [-127, 127]; null where nobody wants them
    scales: Pointer  # float32 [rows], or [rows, groups]
    totals: Pointer  # int32 [rows]: sum of the row's values; without groups
    # int32 [rows, width / kSumWidth]: sums of neighbours; with groups [rows, width / kHalvedWidth] in halves
    sums: Pointer
    width: Int64  # the row's length, rounded up to kRowAlign
    order: Pointer  # int32: null, or: value i comes from x[order[i]], as the weight's inputs were reordered
    num_ordered: Int64  # values in that order
    group: Int64  # neighbours that share a scale, a multiple of kSumWidth; 0: all of a row


@fields_of_annotations
class Gate(Struct):
    """activation.hpp: arguments of penstock_gate. output = activation(gate) × up"""

    num_rows: Pointer  # int32
    gate_up: Pointer  # float32 [rows, 2 × width]
    width: Int64
    activation: Int64  # Activation
    output: Pointer  # float32 [rows, width]; null where only the quantized form is wanted
    quantized: Quantized


@fields_of_annotations
class Gating(Struct):
    """activation.hpp: With g = min(gate, limit): g × sigmoid(slope × (g + cubic × g³)) × (clamp(up, ±limit) + shift)"""

    slope: Float32
    shift: Float32
    limit: Float32
    cubic: Float32


@fields_of_annotations
class AdaptedBlock(Struct):
    """step.hpp: Neighbours in the list of a step's tokens that have an adapter, all with the same one."""

    adapter: Int32
    first: Int32
    count: Int32


@fields_of_annotations
class Step(Struct):
    """step.hpp: Each group of layers has its own: all but the tables of blocks, or the segments, are the same."""

    num_tokens: Int32  # T, flat over the rows
    num_rows: Int32  # R: a row is one request's share of the step
    num_logits: Int32  # S: tokens whose hidden states go to the head
    table_width: Int32
    token_ids: Pointer  # int64 [T]
    positions: Pointer  # int64 [T]
    seen_ends: Pointer  # int64 [T]: the end of the keys that each token sees; null: it sees itself last
    token_kinds: Pointer  # int32 [T]: which experts serve them, where there are several kinds; null: all 0
    rotations: Pointer  # int64 [T]: the tokens' rows in rotary tables
    kv_slots: Pointer  # int64 [T]: block × block_size + offset where each token's key and value go
    logit_rows: Pointer  # int64 [S]
    query_starts: Pointer  # int32 [R + 1]: the tokens of row r are query_starts[r] up to query_starts[r + 1]
    context_lengths: Pointer  # int32 [R]: tokens that the row's last query sees, itself included
    block_tables: Pointer  # int32 [R, table_width]
    num_adapted: Int64  # blocks of tokens that have an adapter
    adapted: Pointer  # AdaptedBlock [num_adapted]
    adapted_tokens: Pointer  # int32: their tokens, block after block
    # Tokens whose embeddings are replaced by rows that were made elsewhere.
    num_placed: Int64
    placed_tokens: Pointer  # int64 [num_placed]
    placed_rows: Pointer  # int64 [num_placed]: their rows of those that are kept
    kept_rows: Pointer  # float32 [any, kept_width]: of each its parts, side by side
    kept_width: Int64
    # Of a group of layers with states: tokens of one row that read a state first and write one (see kernels/states.py).
    num_segments: Int32
    segment_starts: Pointer  # int32 [num_segments + 1], in tokens
    segment_reads: Pointer  # int32 [num_segments]; below 0: zeros
    segment_writes: Pointer  # int32 [num_segments]
    segments_of_rows: Pointer  # int32 [R + 1]: row r's are segments_of_rows[r] up to segments_of_rows[r + 1]


@fields_of_annotations
class RotaryTable(Struct):
    """step.hpp: A rope's cosines and sines; the step says which rows its tokens have."""

    cosines: Pointer  # float32 [rotations, numbers that may be rotated]
    sines: Pointer  # float32: the same, with the rotation's sign
    query_scales: Pointer  # float32 [rotations], or null: what queries are multiplied by


@fields_of_annotations
class Call(Struct):
    """step.hpp"""

    kernel: Pointer  # Kernel
    arguments: Pointer


@fields_of_annotations
class ApplyActivation(Struct):
    """activation.cpp: arguments of penstock_apply_activation."""

    num_rows: Pointer  # int32
    input: Pointer  # float32 [rows, width]
    width: Int64
    activation: Int64  # Activation
    output: Pointer  # float32 [rows, width]; null where only the quantized form is wanted
    quantized: Quantized


@fields_of_annotations
class Meeting(Struct):
    """all_reduce.cpp: arguments of penstock_meet."""

    rank: Int64
    size: Int64
    arrivals: Pointer  # uint32* [size]: each rank's counter, in its own memory


@fields_of_annotations
class AllReduce(Struct):
    """all_reduce.cpp: arguments of penstock_all_reduce."""

    meeting: Meeting
    num_rows: Pointer  # int32
    width: Int64
    parts: Pointer  # float32* [size] of [rows, width], each in its rank's memory
    output: Pointer  # float32 [rows, width]


@fields_of_annotations
class KVMemory(Struct):
    """kv_layout.hpp: One layer's memory."""

    keys: Pointer  # uint8
    values: Pointer  # uint8: the keys themselves, where values are their beginnings
    key_scales: Pointer  # uint16: null where the format has none
    value_scales: Pointer  # uint16
    format: Int64  # KVFormat
    block_size: Int64
    num_heads: Int64
    head_dim: Int64
    value_dim: Int64  # the same, unless values are the keys' beginnings


@fields_of_annotations
class Tile(Struct):
    """attention.hpp"""

    first_token: Int32  # in tile_tokens
    num_tokens: Int32
    row: Int32  # whose block table serves all of them
    first_split: Int32
    end_split: Int32
    leaves_parts: Int32


@fields_of_annotations
class AttentionPlan(Struct):
    """attention.hpp: arguments of penstock_plan_attention."""

    step: Pointer  # Step
    window: Int64  # keys that a query sees, its own included; 0: all
    block_size: Int64
    num_heads: Int64  # of keys; of latents groups of query heads, which all look at the same ones
    num_shared: Int64  # query heads to each of them
    max_parts: Int64  # (token, split) pairs that there is room for
    counts: Pointer  # int32 [2], written: tiles, tokens that left parts
    tiles: Pointer  # Tile [max tokens + max_parts], written
    tile_tokens: Pointer  # int32 [max tokens + max_parts], written
    parts: Pointer  # int32 [max tokens], written: a token's part of split s is number parts[token] + s, or kNoParts
    parted_tokens: Pointer  # int32 [max tokens], written: those that left parts
    row_order: Pointer  # int32 [2 × max rows]: memory for planning


@fields_of_annotations
class Attention(Struct):
    """attention.hpp: arguments of penstock_attention."""

    plan: Pointer  # AttentionPlan
    kv: KVMemory
    query: Pointer  # float32 [T, query_stride]: heads of each token, query_step numbers apart
    query_stride: Int64
    query_step: Int64
    scale: Float32
    softcap: Float32  # a score s becomes softcap × tanh(s / softcap); 0: none
    sinks: Pointer  # float32 [query heads]: one score more of each head, whose value is 0; null: none
    parts: Pointer  # float32 [max_parts, query heads, value_dim + 2]: what a split gave, then its maximum and its sum
    output: Pointer  # float32 [T, query heads × value_dim]
    quantized: Quantized


@fields_of_annotations
class Weight(Struct):
    """linear.hpp"""

    panels: Pointer  # uint8
    scales: Pointer  # float32: int8: one per output feature; null otherwise
    out_features: Int64
    in_features: Int64
    group_size: Int64  # int4: input features that share a scale
    has_zeros: Int64  # int4: every group has its own zero
    block_type: Int64  # of ggml's blocks: which (block_types.hpp); else 0


@fields_of_annotations
class Linear(Struct):
    """linear.hpp: arguments of penstock_linear_*."""

    num_rows: Pointer  # int32
    input: Pointer  # float32 [rows, in_features]: what float weights multiply
    quantized_input: Quantized  # what integer weights multiply
    weight: Weight
    bias: Pointer  # float32 [out_features], or null
    output: Pointer  # float32 [rows, output_stride]
    output_stride: Int64


@fields_of_annotations
class Float8Blocks(Struct):
    """linear.hpp: How a source of 8-bit floats is read: number = values[code] × the scale of the block that it lies
    in."""

    values: Pointer  # float32 [256]: what each code means
    scales: Pointer  # float32 [blocks of rows, scale_stride]
    scale_stride: Int64  # blocks in a row
    rows: Int64  # of a block
    columns: Int64
    first_row: Int64  # where in its block the source's first number lies
    first_column: Int64


@fields_of_annotations
class Pack(Struct):
    """linear.hpp: arguments of penstock_pack_*."""

    source: Pointer  # [num_rows, in_features]
    source_type: Int64  # SourceType
    source_stride: Int64  # elements from row to row
    num_rows: Int64
    first_row: Int64  # the source's first row is this output feature of the weight
    blocks: Float8Blocks  # of kFloat8
    weight: Weight  # written


@fields_of_annotations
class GatedLinear(Struct):
    """linear_output.hpp: arguments of penstock_gated_linear_*. A product and the gate that reads it, which a kernel may
    compute as one."""

    product: Pointer  # Linear: of gates and what they let through, one behind the other
    gate: Pointer  # Gate: of the product's rows


@fields_of_annotations
class Checksum(Struct):
    """checksum.cpp: arguments of penstock_checksum."""

    content: Pointer  # uint8
    nbytes: Int64
    piece_bytes: Int64
    checksums: Pointer  # uint64 [pieces, kSums]


@fields_of_annotations
class CausalConvolution(Struct):
    """convolution.cpp: arguments of penstock_causal_convolution."""

    step: Pointer  # Step
    input: Pointer  # float32 [T, channels]
    channels: Int64
    width: Int64  # up to kMostWidth
    weight: Pointer  # float32 [width, channels]
    bias: Pointer  # float32 [channels], or null
    has_silu: Int64
    states: Pointer  # float32 [num_states, width - 1, channels]
    state_stride: Int64
    output: Pointer  # float32 [T, channels]


@fields_of_annotations
class GroupTables(Struct):
    """decode.hpp: By slot, where its tokens lie in the memory of one group of layers: a table of blocks, or a state to
    read and one to write."""

    num_blocks: Int64  # or states
    max_blocks: Int64  # in a line of `tables`; 0: the group has states
    num_table: Pointer  # int64: blocks in a slot's line of `tables`
    tables: Pointer  # int32 [num_slots, max_blocks]
    reads: Pointer  # int32 [num_slots], of states
    writes: Pointer  # int32 [num_slots]


@fields_of_annotations
class Slots(Struct):
    """decode.hpp"""

    num_slots: Int64
    max_model_len: Int64  # tokens in a line of `histories`
    block_size: Int64
    num_groups: Int64
    groups: Pointer  # GroupTables [num_groups]
    is_taken: Pointer  # uint8
    is_plain: Pointer  # uint8: its next token is chosen from the logits as they are, and nothing else is asked for
    num_tokens: Pointer  # int64: known, or being sampled
    num_computed: Pointer  # int64
    rotation_starts: Pointer  # int64: a position's row in the rotary tables is that much further on
    histories: Pointer  # int32 [num_slots, max_model_len]


@fields_of_annotations
class DecodeGroup(Struct):
    """decode_begin.cpp: One group of layers: what the plan appends there, and the group's step, which has its columns
    in memory below."""

    step: Pointer  # Step
    block_ids: Bytes  # Column [num_block_ids], or states, to append to the rows' tables
    num_block_ids: Int64
    block_offsets: Bytes  # Column [num_offsets]: row r's are block_offsets[r] up to block_offsets[r + 1]
    num_offsets: Int64
    starts: Bytes  # Column [num_starts], of states: the position from which each one is written
    num_starts: Int64
    kv_slots: Pointer  # int64
    block_tables: Pointer  # int32
    segment_reads: Pointer  # int32: of states, as segment_writes
    segment_writes: Pointer  # int32


@fields_of_annotations
class BeginDecode(Struct):
    """decode_begin.cpp: arguments of penstock_begin_decode."""

    slots: Pointer  # Slots
    groups: Pointer  # DecodeGroup [num_groups of slots]
    capacity: Int64  # rows that there is room for below
    num_rotations: Int64  # rows of rotary tables
    rows: Bytes  # Column [num_rows]: each one's slot
    num_rows: Int64
    num_tokens: Bytes  # Column [num_counts]
    num_counts: Int64
    # The columns that all groups' steps share, written here.
    row_slots: Pointer  # int64
    token_ids: Pointer  # int64
    positions: Pointer  # int64
    rotations: Pointer  # int64
    logit_rows: Pointer  # int64
    query_starts: Pointer  # int32
    context_lengths: Pointer  # int32
    is_met: Pointer  # uint8 [num_slots], zeros before and after
    is_begun: Pointer  # int64: 0: refused


@fields_of_annotations
class Logits(Struct):
    """sampling.hpp"""

    values: Pointer  # float32 [rows, width]
    num_rows: Int64
    width: Int64
    maxima: Pointer  # float32 [rows, num_blocks()], filled by `find_maxima`


@fields_of_annotations
class Scan(Struct):
    """sampling_calls.hpp: arguments of penstock_scan."""

    logits: Logits
    largest: Pointer  # float32 [rows]
    best: Pointer  # int64 [rows]
    is_finite: Pointer  # uint8 [rows]


@fields_of_annotations
class DrawColumns(Struct):
    """sampling_calls.hpp: What draws depend on, in columns of one value a line: the columns of `Columns` in
    kernels/reference."""

    kinds: Pointer  # int64
    temperature: Pointer  # float32
    top_p: Pointer  # float32
    min_p: Pointer  # float32
    top_k: Pointer  # int64
    seed: Pointer  # int64
    sample: Pointer  # int64


@fields_of_annotations
class Choose(Struct):
    """sampling_calls.hpp: arguments of penstock_choose."""

    logits: Logits  # with their maxima
    largest: Pointer  # float32
    best: Pointer  # int64
    columns: DrawColumns
    lines: Pointer  # int64: of the columns, for each row; null: a row's own
    positions: Pointer  # int64
    sums: Pointer  # float64 [rows, blocks], to work in
    token_ids: Pointer  # int64


@fields_of_annotations
class ChooseTokens(Struct):
    """decode_end.cpp: arguments of penstock_choose_tokens."""

    step: Pointer  # Step
    row_slots: Pointer  # int64
    logits: Logits  # the number of rows is the step's
    columns: DrawColumns  # a line for each slot
    # Memory to work in, for every row.
    largest: Pointer  # float32
    best: Pointer  # int64
    is_finite: Pointer  # uint8
    sums: Pointer  # float64 [rows, blocks]
    choice_positions: Pointer  # int64: of the tokens to choose
    token_ids: Pointer  # int64: 0 where the logits are not finite
    num_faults: Pointer  # int64: rows whose logits are not


@fields_of_annotations
class KeepTokens(Struct):
    """decode_end.cpp: arguments of penstock_keep_tokens."""

    slots: Pointer  # Slots
    step: Pointer  # Step
    row_slots: Pointer  # int64
    token_ids: Pointer  # int64
    sampled: Pointer  # int32: the same tokens, as results carry them


@fields_of_annotations
class DeltaNet(Struct):
    """delta_net.cpp: arguments of penstock_delta_net."""

    step: Pointer  # Step
    convolved: Pointer  # float32 [T, queries, keys, values]: queries and keys are overwritten
    b: Pointer  # float32 [T, value heads]: overwritten by the rates of learning
    a: Pointer  # float32 [T, value heads]: overwritten by what is kept of the state
    decay: Pointer  # float32 [value heads]: e^A_log
    step_bias: Pointer  # float32 [value heads]
    num_key_heads: Int64
    num_value_heads: Int64
    key_dim: Int64
    value_dim: Int64
    states: Pointer  # float32 [num_states, value heads, key_dim, value_dim]
    state_stride: Int64
    output: Pointer  # float32 [T, value heads × value_dim]


@fields_of_annotations
class Embedding(Struct):
    """embedding.cpp: arguments of penstock_embedding."""

    num_rows: Pointer  # int32
    token_ids: Pointer  # int64*: where the step says which tokens
    first: Int64  # the id of the table's first row
    kind: Int64  # an index of kReaders
    scale: Float32
    table: Weight  # plain rows: `panels` are [out_features, in_features]
    output: Pointer  # float32 [rows, in_features]


@fields_of_annotations
class Experts(Struct):
    """experts.hpp: arguments of penstock_experts_*."""

    num_rows: Pointer  # int32: tokens
    input: Pointer  # float32 [tokens, hidden]: what float weights multiply
    quantized_input: Quantized  # what integer weights multiply
    experts: Pointer  # int32 [tokens, top_k]
    weights: Pointer  # float32 [tokens, top_k]
    top_k: Int64
    first: Int64  # the number of the first expert here
    num_experts: Int64  # here
    hidden: Int64
    width: Int64  # of the activation
    gate_up: Weight  # [2 × width, hidden] of one expert after the other, each filled up to whole panels
    down: Weight  # [hidden, width] likewise
    gate_up_bias: Pointer  # float32 [num_experts, 2 × width], or null
    down_bias: Pointer  # float32 [num_experts, hidden], or null
    gating: Gating
    memory: Pointer  # uint8: for what lies between the products
    memory_bytes: Int64
    output: Pointer  # float32 [tokens, hidden]


@fields_of_annotations
class GatedNorm(Struct):
    """gates.cpp: arguments of penstock_gated_norm."""

    num_rows: Pointer  # int32
    x: Pointer  # float32 [rows, heads × size]
    gate: Pointer  # float32: likewise
    weight: Pointer  # float32 [size]
    epsilon: Float32
    num_heads: Int64
    size: Int64
    output: Pointer  # float32
    quantized: Quantized


@fields_of_annotations
class GateHeads(Struct):
    """gates.cpp: arguments of penstock_gate_heads."""

    num_rows: Pointer  # int32
    attended: Pointer  # float32 [rows, heads × size]
    gates: Pointer  # float32: of the first row and head
    row_step: Int64  # numbers from one row's gates to the next one's
    gate_step: Int64  # and from one head's
    num_heads: Int64
    size: Int64
    output: Pointer  # float32
    quantized: Quantized


@fields_of_annotations
class StoreLatents(Struct):
    """latents.cpp: arguments of penstock_store_latents."""

    step: Pointer  # Step
    latents: Pointer  # float32 [T, head_dim of kv]: a latent of `rank` numbers, and a key
    norm: Pointer  # float32 [rank]
    epsilon: Float32
    rank: Int64
    rotary: Pointer  # RotaryTable
    rotation: Int64  # Rotation
    kv: KVMemory


@fields_of_annotations
class HeadProducts(Struct):
    """latents.cpp: arguments of penstock_head_products."""

    step: Pointer  # Step
    input: Pointer  # float32 [T, num_heads × input_width]: of each head the numbers that are multiplied, then the rest
    input_width: Int64
    in_features: Int64
    num_heads: Int64
    product: Pointer  # Kernel: of one head's rows
    products: Pointer  # Linear [num_heads], each with memory for its input, which is written here
    rotary: Pointer  # RotaryTable
    num_rotated: Int64  # numbers of a head's rest, rotated into the output behind its product; 0: there is none
    rotation: Int64  # Rotation
    quantized: Quantized  # of the output's rows


@fields_of_annotations
class PackValues(Struct):
    """pack.hpp: arguments of penstock_pack_int4_from and penstock_pack_int8_from. Integers that a checkpoint brings."""

    values: Pointer  # uint8 [num_rows, in_features]: signed for int8, 0..15 for int4
    scales: Pointer  # float32 [num_rows] or, for int4, [num_rows, groups]
    zeros: Pointer  # uint8: int4: [num_rows, groups], or null where all are 8
    num_rows: Int64
    first_row: Int64  # the source's first row is this output feature of the weight
    weight: Weight  # written


@fields_of_annotations
class PackBlocks(Struct):
    """linear_blocks.cpp: arguments of penstock_pack_blocks."""

    blocks: Pointer  # uint8: of the file, [num_rows, row_bytes]
    row_stride: Int64  # bytes from row to row
    num_rows: Int64
    first_row: Int64  # the source's first row is this output feature of the weight
    weight: Weight  # written


@fields_of_annotations
class PackBlockParts(Struct):
    """linear_blocks.cpp: arguments of penstock_pack_block_parts. Blocks that were taken apart elsewhere."""

    codes: Pointer  # uint8 [num_rows, in_features]
    d: Pointer  # uint16 [num_rows, blocks]
    dmin: Pointer  # uint16: likewise, or null
    scales: Pointer  # int8 [num_rows, blocks, 16]
    mins: Pointer  # int8: likewise, or null
    num_rows: Int64
    first_row: Int64
    weight: Weight  # written


@fields_of_annotations
class JoinedPart(Struct):
    """linear_joined.cpp"""

    product: Pointer  # Kernel: of the part's format
    first_output: Int64
    linear: Linear  # its output is that of the whole


@fields_of_annotations
class JoinedLinear(Struct):
    """linear_joined.cpp: arguments of penstock_linear_joined."""

    whole: Linear  # what others see: the output, and what it belongs to
    num_parts: Int64
    parts: Pointer  # JoinedPart


@fields_of_annotations
class LoraPart(Struct):
    """lora.cpp: One part of a product, for all adapters."""

    down: Pointer  # [adapters] of the most that one takes
    up: Pointer  # likewise
    ranks: Pointer  # int32 [adapters]: 0 for one that leaves this part as it is
    first_output: Int64
    out_features: Int64


@fields_of_annotations
class Lora(Struct):
    """lora.cpp: arguments of penstock_lora_*."""

    step: Pointer  # Step
    product: Pointer  # Linear: whose output is added to
    input: Pointer  # float32 [rows, in_features]
    in_features: Int64
    max_rank: Int64  # of any adapter
    num_parts: Int64
    parts: Pointer  # LoraPart
    shrunk: Pointer  # float32 [tokens with an adapter, parts, max_rank rounded up to kQuad]


@fields_of_annotations
class Multiply(Struct):
    """multiply.cpp: arguments of penstock_multiply."""

    num_rows: Pointer  # int32
    x: Pointer  # float32 [rows, width]
    y: Pointer  # float32 [rows, y_stride]
    y_stride: Int64
    width: Int64
    output: Pointer  # float32 [rows, width]
    quantized: Quantized


@fields_of_annotations
class AddRmsNorm(Struct):
    """norm.cpp: arguments of penstock_add_rms_norm."""

    num_rows: Pointer  # int32
    stream: Pointer  # float32 [rows, width]: the residual stream, updated in place
    update: Pointer  # float32 [rows, width]; null where nothing is added
    scale: Float32  # of the update
    weight: Pointer  # float32 [width]
    epsilon: Float32
    width: Int64
    output: Pointer  # float32 [rows, width]; null where only the quantized form is wanted
    quantized: Quantized


@fields_of_annotations
class AddLayerNorm(Struct):
    """norm.cpp: arguments of penstock_add_layer_norm."""

    num_rows: Pointer  # int32
    stream: Pointer  # float32 [rows, width], updated in place
    update: Pointer  # float32 [rows, width]; null where nothing is added
    scale: Float32  # of the update
    weight: Pointer  # float32 [width]
    bias: Pointer  # float32 [width], or null
    epsilon: Float32
    width: Int64
    output: Pointer  # float32 [rows, width]; null where only the quantized form is wanted
    quantized: Quantized


@fields_of_annotations
class PackMxfp4(Struct):
    """pack_mxfp4.cpp: arguments of penstock_pack_mxfp4."""

    codes: Pointer  # uint8 [num_rows][blocks][16]: byte i holds inputs 2i (low nibble) and 2i + 1
    exponents: Pointer  # uint8 [num_rows][blocks]
    codes_stride: Int64  # bytes from row to row
    exponents_stride: Int64
    num_rows: Int64
    first_row: Int64  # the source's first row is this output feature of the weight
    weight: Weight  # written


@fields_of_annotations
class AddPartNorms(Struct):
    """part_norms.cpp: arguments of penstock_add_part_norms."""

    num_rows: Pointer  # int32
    total: Pointer  # float32 [rows, width], updated in place
    x: Pointer  # float32 [rows, width]
    weight: Pointer  # float32 [part]
    epsilon: Float32
    part: Int64
    width: Int64  # a multiple of `part`


@fields_of_annotations
class SquareSums(Struct):
    """projection_norm.cpp: arguments of penstock_square_sums."""

    num_rows: Pointer  # int32
    heads: Pointer  # float32 [rows, width]
    width: Int64
    query_width: Int64
    key_width: Int64
    output: Pointer  # float32 [rows, 2]: the sums


@fields_of_annotations
class NormProjections(Struct):
    """projection_norm.cpp: arguments of penstock_norm_projections."""

    num_rows: Pointer  # int32
    heads: Pointer  # float32 [rows, width], changed in place
    width: Int64
    query_width: Int64
    key_width: Int64
    sums: Pointer  # float32 [rows, 2], of all ranks
    query_weight: Pointer  # float32 [query_width]
    key_weight: Pointer  # float32 [key_width]
    query_total: Int64  # how many numbers the sums are of
    key_total: Int64
    epsilon: Float32
    limit: Float32


@fields_of_annotations
class Quantize(Struct):
    """quantize.cpp: arguments of penstock_quantize."""

    num_rows: Pointer  # int32
    input: Pointer  # float32 [rows, width]
    width: Int64
    quantized: Quantized


@fields_of_annotations
class Recording(Struct):
    """replay.cpp: arguments of penstock_replay."""

    calls: Pointer  # Call
    count: Int64


@fields_of_annotations
class Route(Struct):
    """route.cpp: arguments of penstock_route."""

    num_rows: Pointer  # int32
    logits: Pointer  # float32 [rows, num_experts]
    bias: Pointer  # float32 [num_experts], of the choice alone; or null
    factors: Pointer  # float32 [num_experts], of the weights; or null
    # Where the step says of which kind each token is, [rows]; or null. Tokens of other kinds than this get no expert.
    # Of a step that says nothing all are of kind 0.
    kinds: Pointer  # int32*
    own_kind: Int64
    num_experts: Int64
    top_k: Int64
    score: Int64  # Score
    num_groups: Int64
    kept_groups: Int64
    counted: Int64  # of a group: its best one, or its best two together
    renormalizes: Int64
    least_sum: Float32
    scale: Float32
    experts: Pointer  # int32 [rows, top_k]
    weights: Pointer  # float32 [rows, top_k]


@fields_of_annotations
class Add(Struct):
    """rows.cpp: arguments of penstock_add. output = (stream + scale × update) × factor"""

    num_rows: Pointer  # int32
    stream: Pointer  # float32 [rows, width]
    update: Pointer  # float32 [rows, width]
    scale: Float32
    factor: Float32
    width: Int64
    output: Pointer  # float32 [rows, width]: the stream itself, unless ranks share the sum
    quantized: Quantized


@fields_of_annotations
class AddGated(Struct):
    """rows.cpp: arguments of penstock_add_gated. output = total + update × sigmoid(gate)"""

    num_rows: Pointer  # int32
    total: Pointer  # float32 [rows, width]
    update: Pointer  # float32 [rows, width]
    gate: Pointer  # float32 [rows]
    width: Int64
    output: Pointer  # float32 [rows, width]: the total itself, unless ranks share the sum


@fields_of_annotations
class Cap(Struct):
    """rows.cpp: arguments of penstock_cap. output = limit × tanh(input / limit)"""

    num_rows: Pointer  # int32
    input: Pointer  # float32 [rows, width]
    width: Int64
    limit: Float32
    output: Pointer  # float32 [rows, output_stride]: the input itself, unless ranks share the rows
    output_stride: Int64


@fields_of_annotations
class GatherRows(Struct):
    """rows.cpp: arguments of penstock_gather_rows."""

    num_rows: Pointer  # int32: of the output
    indices: Pointer  # int64*: where the step says which rows of the input are wanted
    input: Pointer  # float32 [any, width]
    width: Int64
    output: Pointer  # float32 [rows, width]


@fields_of_annotations
class PlaceRows(Struct):
    """rows.cpp: arguments of penstock_add_rows and penstock_put_rows."""

    step: Pointer  # Step: says which tokens get which rows
    stream: Pointer  # float32 [rows, width], changed in place
    width: Int64
    part: Int64  # of the rows: numbers from part × width on


@fields_of_annotations
class History(Struct):
    """sampling_adjust.cpp: Some of the rows of logits, each with the tokens before it."""

    logits: Pointer  # float32 [rows, width]
    width: Int64
    count: Int64  # of the rows meant
    rows: Pointer  # int64 [count], of the logits
    tokens: Pointer  # int32 [slots, stride]
    stride: Int64
    slots: Pointer  # int64 [count]
    lengths: Pointer  # int64 [count]


@fields_of_annotations
class ApplyMask(Struct):
    """sampling_adjust.cpp: arguments of penstock_apply_mask."""

    logits: Pointer  # float32 [rows, width]
    width: Int64
    count: Int64  # of the rows meant
    rows: Pointer  # int64 [count], of the logits
    bits: Pointer  # uint32 [count, words]: lowest bit first; 1 allows


@fields_of_annotations
class PenalizeRepetition(Struct):
    """sampling_adjust.cpp: arguments of penstock_penalize_repetition."""

    history: History
    penalties: Pointer  # float32 [count]


@fields_of_annotations
class PenalizeGenerated(Struct):
    """sampling_adjust.cpp: arguments of penstock_penalize_generated."""

    history: History
    starts: Pointer  # int64 [count]: position of the first generated token
    frequencies: Pointer  # float32
    presences: Pointer  # float32


@fields_of_annotations
class RankedLogprobs(Struct):
    """sampling_logprobs.cpp: arguments of penstock_ranked_logprobs."""

    logits: Logits
    chosen: Pointer  # int64 [rows]
    num_top: Int64
    sums: Pointer  # float64 [rows, blocks], to work in
    ahead: Pointer  # int32 [rows, blocks], to work in: tokens that come before the chosen one
    token_ids: Pointer  # int32 [rows, 1 + num_top]: the chosen one first
    logprobs: Pointer  # float32 [rows, 1 + num_top]
    ranks: Pointer  # int32 [rows]


@fields_of_annotations
class MostLikely(Struct):
    """sampling_order.cpp: arguments of penstock_most_likely."""

    logits: Logits
    count: Int64
    values: Pointer  # float32 [rows, count]
    ids: Pointer  # int64 [rows, count]


@fields_of_annotations
class StoreHeads(Struct):
    """store_heads.cpp: arguments of penstock_store_heads."""

    step: Pointer  # Step
    heads: Pointer  # float32 [T, query heads × query_step + projected × key heads × head_dim]: queries are overwritten
    num_query_heads: Int64
    query_step: Int64  # numbers from a query to the next one; behind it may stand a gate, which stays
    num_projected: Int64  # 2: keys and values; 1: keys, which serve as values; 0: neither, and nothing is stored
    query_norm: Pointer  # float32 [head_dim] for all heads, or for each, or null
    key_norm: Pointer  # float32
    norm_stride: Int64  # from one head's weight to the next one's; 0: all have one
    norms_have_mean: Int64  # which they take off first
    norms_follow: Int64  # norms come behind the rotation
    norms_values: Int64  # without a weight
    epsilon: Float32
    rotary: Pointer  # RotaryTable: null where nothing is rotated
    rotation: Int64  # Rotation
    num_rotated: Int64  # of a head, the first ones; of pairs, the others' sines are 0
    kv: KVMemory
