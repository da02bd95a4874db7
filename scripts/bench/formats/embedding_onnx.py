"""Exports an embedding model of `embedding_checkpoint.py` to ONNX, and has ONNX Runtime quantize its products.

    python -m bench.formats.embedding_onnx CHECKPOINT FOLDER int8        # or none: float32

It runs in a Python with torch, transformers, onnx and onnxruntime. int8 is dynamic: weights are quantized in the file,
inputs as they come.
"""

import sys
from pathlib import Path
from typing import Any


def main(checkpoint: Path, folder: Path, quantization: str) -> None:
    folder.mkdir()
    output = folder / "model.onnx"
    if quantization == "none":
        export(checkpoint, output)
        return
    from onnxruntime.quantization import QuantType, quantize_dynamic

    floats = folder / "floats.onnx"
    export(checkpoint, floats)
    quantize_dynamic(floats, output, weight_type=QuantType.QInt8, use_external_data_format=True)
    for path in folder.glob("floats*"):
        path.unlink()


def export(checkpoint: Path, output: Path) -> None:
    import torch
    from transformers import AutoModel

    class Rows(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(checkpoint, dtype=torch.float32, attn_implementation="sdpa").eval()

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    ids = torch.randint(70, 90, (2, 24))
    texts, tokens = torch.export.Dim("texts", min=1, max=1024), torch.export.Dim("tokens", min=2, max=8192)
    with torch.inference_mode():
        torch.onnx.export(
            Rows(), (ids, torch.ones_like(ids)), str(output), input_names=["input_ids", "attention_mask"],
            output_names=["rows"], dynamo=True, external_data=True,
            dynamic_shapes={"input_ids": {0: texts, 1: tokens}, "attention_mask": {0: texts, 1: tokens}},
        )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
