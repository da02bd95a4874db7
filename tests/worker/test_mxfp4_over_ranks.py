"""gpt-oss in MXFP4 on two ranks, by width and by whole experts: a row's bits are the same in any company.

Both ranks compute one plan in step, without a tree.
"""

import pytest
from builders.compared_models import found_by_ranks
from builders.mxfp4_model import mxfp4_model
from builders.native_variants import available_variants

PROMPTS = [[(13 * number + 7 * place) % 290 + 5 for place in range(1 + 11 * number)] for number in range(5)]
# One process is one rank; it prints a digest of each row's logits for each way in which the rows are computed.
RANK = """
import hashlib, json, sys
from pathlib import Path

import torch
from builders.hand_driven import HandDriven
from penstock.worker.models.load import load_model
from penstock.worker.parallel import Parallel

rank, rendezvous, folder, by_expert, prompts = json.loads(sys.argv[1])
torch.set_num_threads(1)
ranks = Parallel.join(rank, 2, Path(rendezvous), torch.device("cpu"))
model = load_model(Path(folder), ranks=ranks, expert_parallel=by_expert)

def digests(prompts, budget, threads):
    model.backend.library.set_threads(threads)
    driven = HandDriven(model)
    rows = [driven.add(prompt) for prompt in prompts]
    return [hashlib.sha256(logits.numpy().tobytes()).hexdigest() for logits in driven.greedy(rows, 8, budget)]

found = {"alone": [digests([prompt], 1000, 1)[0] for prompt in prompts]}
for budget, threads in ((1, 1), (16, 2), (37, 3), (1000, 2)):
    found[f"{budget} tokens a step, {threads} threads"] = digests(prompts, budget, threads)
ranks.leave()
print(json.dumps(found))
"""


@pytest.mark.skipif(not available_variants(), reason="compares what the native kernels compute")
@pytest.mark.parametrize(
    "by_expert", [pytest.param(False, marks=pytest.mark.long), True], ids=["by width", "by expert"]
)
def test_a_row_has_the_same_bits_alone_and_in_any_company(tmp_path, by_expert):
    # Three blocks of width, so that the ranks' shares are unlike.
    folder = mxfp4_model(tmp_path / "model", intermediate_size=96)
    arguments = [[rank, str(tmp_path / "meet"), str(folder), by_expert, PROMPTS] for rank in range(2)]
    for found in found_by_ranks(RANK, arguments):
        alone = found.pop("alone")
        assert len(set(alone)) == len(PROMPTS)
        assert found == dict.fromkeys(found, alone)
