// What latent attention does to a step's rows besides attending: each token's latent and key into the memory, and what
// each head multiplies with a weight of its own.
//
//   memory[slot] = latent / sqrt(mean(latent²) + ε) × weight, rotated key          of each token, for all heads
//   output[token, head] = weight[head] × input[token, head], rotated rest of it    of each token and head
//
// A product is the recorded one of the weights' format, on rows that were gathered or quantized for it; heads and blocks
// of rows are shared by the threads, and what a product would share it does by itself.
#include <algorithm>

#include "linear.hpp"
#include "pool.hpp"
#include "rows.hpp"
#include "stored_heads.hpp"

namespace penstock {

struct StoreLatents {
    const Step* step;
    const float* latents;  // [T, head_dim of kv]: a latent of `rank` numbers, and a key
    const float* norm;     // [rank]
    float epsilon;
    int64_t rank;
    const RotaryTable* rotary;
    Rotation rotation;
    KVMemory kv;
};

struct HeadProducts {
    const Step* step;
    const float* input;  // [T, num_heads × input_width]: of each head the numbers that are multiplied, then the rest
    int64_t input_width;
    int64_t in_features;
    int64_t num_heads;
    Kernel product;          // of one head's rows
    const Linear* products;  // [num_heads], each with memory for its input, which is written here
    const RotaryTable* rotary;
    int64_t num_rotated;  // numbers of a head's rest, rotated into the output behind its product; 0: there is none
    Rotation rotation;
    Quantized quantized;  // of the output's rows
};

static constexpr int64_t kChunkTokens = 32;
static constexpr int64_t kBlockRows = 64;

static void store_latent(const StoreLatents& a, int64_t token) {
    const KVMemory& kv = a.kv;
    const int64_t width = kv.head_dim, rotated = width - a.rank, row = a.step->rotations[token] * rotated;
    const float* latent = a.latents + token * width;
    float ready[kLargestHead];
    normalize(latent, a.norm, a.epsilon, a.rank, ready);
    rotate(latent + a.rank, a.rotary->cosines + row, a.rotary->sines + row, a.rotation, rotated, rotated, ready + a.rank);
    const int64_t slot = a.step->kv_slots[token], offset = slot % kv.block_size, block = block_head(kv, slot / kv.block_size, 0);
    uint8_t* to = kv.values + block * bytes_of_block_head(kv);
    Packed packed;
    if (kv.format != KVFormat::kInt8) {
        pack(ready, width, kv.format, packed);
        return store_value(packed, kv, offset, to, nullptr);
    }
    // Keys may be far larger than what was normed, so each has a scale.
    uint16_t* scales = kv.value_scales + block * kLatentScales * kv.block_size;
    Packed key;
    pack(ready, a.rank, kv.format, packed);
    pack(ready + a.rank, rotated, kv.format, key);
    std::copy(key.bytes, key.bytes + rotated, packed.bytes + a.rank);
    store_value(packed, kv, offset, to, scales);
    scales[kv.block_size + offset] = key.scale;
}

static void store_latents(const StoreLatents& a) {
    const int64_t num_chunks = (a.step->num_tokens + kChunkTokens - 1) / kChunkTokens;
    const int64_t together = sizes_of(a.kv.format).per_unit;
    parallel(num_chunks, [&](int64_t chunk) {
        const int64_t end = border(*a.step, (chunk + 1) * kChunkTokens, together);
        for (int64_t token = border(*a.step, chunk * kChunkTokens, together); token < end; ++token)
            store_latent(a, token);
    });
}

// The rows of a head, where its product reads them.
static void give_rows(const HeadProducts& a, const float* input, const Linear& linear, int64_t num_rows) {
    for (int64_t row = 0; row < num_rows; ++row, input += a.num_heads * a.input_width) {
        if (linear.quantized_input.values) quantize_row(input, a.in_features, linear.quantized_input, row);
        else std::copy(input, input + a.in_features, const_cast<float*>(linear.input) + row * a.in_features);
    }
}

static Linear rows_of(Linear linear, int64_t first, const int32_t* num_rows) {
    Quantized& input = linear.quantized_input;
    linear.num_rows = num_rows;
    linear.output += first * linear.output_stride;
    if (!input.values) {
        linear.input += first * linear.weight.in_features;
        return linear;
    }
    input.values += first * input.width;
    input.scales += first * input.scales_per_row();
    input.totals += first;
    input.sums += first * input.sums_per_row();
    return linear;
}

static void multiply_head(const HeadProducts& a, int64_t head, int64_t first, int64_t count) {
    const auto num_rows = static_cast<int32_t>(count);
    const Linear linear = rows_of(a.products[head], first, &num_rows);
    const float* input = a.input + (first * a.num_heads + head) * a.input_width;
    give_rows(a, input, linear, count);
    a.product(&linear);
    if (!a.num_rotated) return;
    for (int64_t row = 0; row < count; ++row) {
        const int64_t at = a.step->rotations[first + row] * a.num_rotated;
        rotate(input + row * a.num_heads * a.input_width + a.in_features, a.rotary->cosines + at, a.rotary->sines + at,
               a.rotation, a.num_rotated, a.num_rotated,
               linear.output + row * linear.output_stride + linear.weight.out_features);
    }
}

static void head_products(const HeadProducts& a) {
    const int64_t num_rows = a.step->num_tokens, num_blocks = (num_rows + kBlockRows - 1) / kBlockRows;
    // Neighbouring chunks share their weights.
    parallel(a.num_heads * num_blocks, [&](int64_t chunk) {
        const int64_t first = chunk % num_blocks * kBlockRows;
        multiply_head(a, chunk / num_blocks, first, std::min(kBlockRows, num_rows - first));
    });
    if (!a.quantized.values) return;
    const int64_t width = a.products->output_stride;
    over_rows(num_rows, width, [&](int64_t row) {
        quantize_row(a.products->output + row * width, width, a.quantized, row);
    });
}

}  // namespace penstock

extern "C" void penstock_store_latents(const void* arguments) {
    penstock::store_latents(*static_cast<const penstock::StoreLatents*>(arguments));
}
extern "C" void penstock_head_products(const void* arguments) {
    penstock::head_products(*static_cast<const penstock::HeadProducts*>(arguments));
}
