"""Every operation's version for processors agrees with its formula; those for GPUs: triton/test_every_kernel.py."""

import torch
from builders.cases import for_each
from builders.elsewhere import tensors_in
from builders.native_ranks import OF_FAR_RANKS, OF_RANKS
from builders.native_variants import needs_variant
from builders.operation_examples.table import EXAMPLES
from builders.recorded_layers import RECORDED, is_recorded, only_rows

import penstock.kernels.torch.sampling  # noqa: F401  registers its operations
from penstock.kernels.cpu.library import load
from penstock.kernels.registry import OPS, op

# Examples of put_rows and add_rows are whole steps, too;
# test_cpu_attention.py, test_lora.py, test_cpu_experts.py and test_states.py cut those
OF_WHOLE_STEPS = (
    "paged_attention.", "latent_attention.", "lora.", "experts.route", "experts.experts",
    "states.causal_convolution", "states.delta_net", "pointwise.put_rows", "pointwise.add_rows",
)  # fmt: skip


@for_each(
    "name, backend",
    [(name, backend) for name, found in OPS.items() for backend in found.versions if backend != "triton"],
)
def test_every_version_of_an_operation_agrees_with_its_formula(name, backend):
    _holds(name, OPS[name].versions[backend])


@needs_variant
@for_each("name", RECORDED)
def test_every_kernel_of_a_recorded_step_agrees_with_its_formula(name, variant):
    _holds(name, RECORDED[name], is_recorded)


@needs_variant
@for_each("name", [name for name in RECORDED if not name.startswith(OF_WHOLE_STEPS)])
@for_each("threads", [1, 3])
def test_a_row_of_a_recorded_step_has_the_same_bits_alone_and_in_company(name, threads, variant):
    version, whole = RECORDED[name], slice(None)
    load().set_threads(threads)
    for arguments in filter(is_recorded, EXAMPLES[name](0)):
        together = version(*only_rows(name, arguments, whole))
        for row in {0, len(together) // 2, len(together) - 1}:
            alone = version(*only_rows(name, arguments, slice(row, row + 1)))
            assert torch.equal(alone[0], together[row]), f"row {row} of {len(together)}"


@needs_variant
@for_each("name", OF_RANKS)
@for_each("threads", [1, 2])
def test_what_ranks_compute_together_agrees_with_its_formula_alone_and_in_company(name, threads):
    try:
        load().set_threads(threads)
        _holds(name, OF_RANKS[name])
        if name in OF_FAR_RANKS:
            _holds(name, OF_FAR_RANKS[name])
    finally:
        load().set_threads(1)
    for (parts,) in EXAMPLES[name](0) if threads == 1 else ():
        together = OF_RANKS[name](parts)
        for row in {0, len(together) // 2, len(together) - 1}:
            [alone] = OF_RANKS[name]([part[row : row + 1] for part in parts])
            assert torch.equal(alone, together[row]), f"row {row} of {len(together)}"


def _holds(name, version, is_done=lambda arguments: True):
    found, num_done = OPS[name], 0
    for seed in range(3):
        # Made twice, because an operation may write into what it is given.
        for arguments, again in zip(EXAMPLES[name](seed), EXAMPLES[name](seed), strict=True):
            if is_done(arguments):
                num_done += 1
                pairs = [(version(*arguments), found.reference(*again))]
                if name in RECORDED:  # of the others some may overwrite what they are given
                    pairs.append((_floats_in(arguments), _floats_in(again)))
                for one, other in pairs:
                    torch.testing.assert_close(one, other, rtol=found.tolerance, atol=found.tolerance, equal_nan=True)
    assert num_done


def _floats_in(arguments):
    return [tensor for tensor in tensors_in(arguments) if tensor.is_floating_point()]


def test_every_operation_has_examples():
    assert all(next(EXAMPLES[name](0), None) is not None for name in OPS)


def test_a_call_goes_to_the_version_of_its_device_if_that_can_run():
    @op()
    def doubled(x):
        return x * 2

    OPS.pop(doubled.name)

    @doubled.implement("triton")
    def doubled_on_a_gpu(x):
        raise AssertionError("a CPU tensor came here")

    @doubled.implement("cpu", available=lambda: False)
    def doubled_without_a_compiler(x):
        raise AssertionError("this version can't run")

    assert doubled(torch.ones(2)).tolist() == [2, 2]

    @doubled.implement("cpu")
    def doubled_by_addition(x):
        return x + x + 0.5

    assert doubled(torch.ones(2)).tolist() == [2.5, 2.5]
