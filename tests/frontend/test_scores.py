"""Scores of texts: which pairs are compared, how a reranker's prompt is written, and what its score is."""

import json

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.later import Later
from builders.pooled_models import ENCODERS, classifier, embedding_model, encoder, reranker
from builders.runner_harness import engine_of, prompt
from tokenizers.processors import TemplateProcessing

from penstock import PoolingParams, Tokenizer
from penstock.frontend.models.pooled_model import find_pooled_model
from penstock.frontend.pooling.door import PoolingDoor, activated
from penstock.frontend.pooling.scores import SIMILARITIES, PairWriter, comparison, cosine, text_pairs
from penstock.protocol.errors import ConfigError, LimitError, RequestError
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.pooling.form import WantedVectors
from penstock.protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput
from penstock.worker.start.load import load_model

transformers = Later("transformers")


def writer(folder, longest=1000, **params):
    return PairWriter(find_pooled_model(folder, "auto"), Tokenizer(folder), longest, PoolingParams(**params))


def test_one_query_goes_with_each_document_and_many_go_one_by_one():
    assert text_pairs("a", ["b", "c"]) == [("a", "b"), ("a", "c")]
    assert text_pairs(["a", "d"], ["b", "c"]) == [("a", "b"), ("d", "c")]
    with pytest.raises(RequestError, match="2 queries and 3 documents"):
        text_pairs(["a", "d"], ["b", "c", "e"])
    with pytest.raises(RequestError, match="documents must be"):
        text_pairs("a", [])


def test_a_reranker_refuses_a_prompt_name_that_it_does_not_know(tmp_path):
    encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    model = find_pooled_model(tmp_path, "auto")
    with pytest.raises(RequestError, match="no prompt 'web'; its own are: none"):
        comparison([("a", "b")], model, lambda: Tokenizer(tmp_path), 100, PoolingParams(prompt_name="web"))


@for_each("kind", ["Bert", "XLMRoberta", "ModernBert"])
def test_a_cross_encoders_pair_is_what_its_tokenizer_joins(kind, tmp_path):
    encoder(tmp_path, kind, "ForSequenceClassification", num_labels=1)
    assert (find_pooled_model(tmp_path, "auto").pairs, kind in ENCODERS) == ("tokenizer", True)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    [one] = writer(tmp_path).prompts([("what is it", "a lot of words")])
    assert one.token_ids == theirs("what is it", "a lot of words")["input_ids"]
    [cut] = writer(tmp_path, truncate_prompt_tokens=12).prompts([("what is it", "a lot of words")])
    assert cut.token_ids == theirs("what is it", "a lot of words", truncation="only_second", max_length=12)["input_ids"]


def test_a_cross_encoders_own_prompt_stands_before_the_query(tmp_path):
    encoder(tmp_path, "Bert", "ForSequenceClassification", num_labels=1)
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"q": "find: "}, "default_prompt_name": "q"})
    )
    [one] = writer(tmp_path).prompts([("what is it", "a lot of words")])
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert one.token_ids == theirs("find: what is it", "a lot of words")["input_ids"]


def test_a_text_is_lowered_and_keeps_the_special_tokens_around_it(tmp_path):
    encoder(tmp_path, "Bert")
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    tokenizer, theirs = Tokenizer(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = ["some WORDS", theirs.bos_token + "a", ""]
    assert tokenizer.encode_as_is(texts) == [theirs(text)["input_ids"] for text in map(str.lower, texts)]
    assert tokenizer.encode(theirs.bos_token + "a") == theirs("a")["input_ids"]


def test_a_text_that_is_cut_keeps_the_tokens_that_end_it(tmp_path):
    encoder(tmp_path, "Bert")
    tokenizer = Tokenizer(tmp_path)
    tokenizer.backend.post_processor = TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    door = PoolingDoor(find_pooled_model(tmp_path, "auto"), MemoryPlan("", "", 0, 0, 0, [], 100, 100, 100, "", ""))
    ids = tokenizer.encode("so many words of a text")
    cut = PoolingParams(truncate_prompt_tokens=5)
    assert door.fitting(ids, cut, door.affixes(tokenizer)) == [*ids[:4], 2]
    left = PoolingParams(truncate_prompt_tokens=5, truncation_side="left")
    assert door.fitting(ids, left, door.affixes(tokenizer)) == [1, *ids[-4:]] and ids[-1] == 2
    assert door.fitting(ids, left) == ids[-5:]
    assert door.fitting(ids, cut) == ids[:5]


def test_a_rerankers_score_is_the_sigmoid_of_one_logit_less_another(tmp_path):
    reranker(tmp_path, true_token_id=7, false_token_id=9)
    found = find_pooled_model(tmp_path, "auto")
    assert (found.pairs, found.activation, found.is_guess) == ("template", "sigmoid", False)
    assert found.form.width(64) == 1
    [one] = writer(tmp_path, instruction="say").prompts([("what", "that")])
    assert Tokenizer(tmp_path).decode(one.token_ids) == "say<q>what<d>that<a>"
    request = prompt(0, one.token_ids, max_tokens=1)
    request.pooled = WantedVectors()
    values = engine_of(load_model(tmp_path, pooling=found.form)).run(request)[0].vectors
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        logits = reference(torch.tensor([one.token_ids])).logits[0, -1]
    wanted = torch.sigmoid(logits[7] - logits[9]).item()
    score = activated(numpy.frombuffer(values, numpy.float32).reshape(1, 1), found.activation)
    assert abs(score[0, 0] - wanted) < 1e-5


def test_a_long_document_is_cut_within_its_template_and_a_long_query_is_refused(tmp_path):
    reranker(tmp_path, true_token_id=7)
    [one] = writer(tmp_path, truncate_prompt_tokens=20).prompts([("why", "because " * 20)])
    text = Tokenizer(tmp_path).decode(one.token_ids)
    assert len(one.token_ids) <= 20 and text.startswith("<q>why<d>because") and text.endswith("<a>")
    [refused] = writer(tmp_path, truncate_prompt_tokens=20).prompts([("why " * 20, "because")])
    assert isinstance(refused, LimitError)


def test_the_published_words_of_qwen3_reranker_go_by_its_name(tmp_path):
    folder = classifier(tmp_path / "Qwen3-Reranker-0.6B-seq-cls", "ForSequenceClassification", 1)
    assert find_pooled_model(folder, "auto").pairs == "qwen3"
    [one] = writer(folder).prompts([("what", "that")])
    text = Tokenizer(folder).decode(one.token_ids, skip_special_tokens=False)
    assert "passages that answer the query\n<Query>: what\n<Document>: that<|im_end|>" in text
    assert (
        find_pooled_model(classifier(tmp_path / "other", "ForSequenceClassification", 1), "auto").pairs == "tokenizer"
    )


def test_vectors_are_compared_by_their_cosine_with_the_models_own_words_before_a_query(tmp_path):
    folder = embedding_model(tmp_path / "model", pooling_mode_mean_tokens=True)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "q: ", "document": ""}}))
    model = find_pooled_model(folder, "auto")
    pairs = text_pairs("a", ["b", "c", "b"])
    compared = comparison(pairs, model, lambda: Tokenizer(folder), 100, PoolingParams())
    [(queries, of_query), (documents, of_document)] = compared.groups
    assert (queries, of_query.prompt_name) == (["a"], "query")
    assert (documents, of_document.prompt_name) == (["b", "c"], "document")

    def result(*data):
        return PoolingRequestOutput("0", PoolingOutput(numpy.array(data, numpy.float32)), [1])

    failed = PoolingRequestOutput("0", None, [1], error_code=400, error_msg="too long")
    scores = compared.scores([result(2, 0), result(1, 1), failed])
    assert [each.error_code for each in scores] == [200, 400, 200]
    assert scores[0].outputs.score == scores[2].outputs.score == cosine(*map(numpy.array, ([2, 0], [1, 1])))
    assert abs(scores[0].outputs.score - 0.5**0.5) < 1e-9


@for_each("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_vectors_are_compared_as_sentence_transformers_does(name, tmp_path):
    folder = embedding_model(tmp_path / "model", pooling_mode_mean_tokens=True)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"similarity_fn_name": name}))
    similarity = SIMILARITIES[find_pooled_model(folder, "auto").similarity]
    a, b = torch.tensor([2.0, 0, 1]), torch.tensor([1.0, 1, -3])
    distance = {"euclidean": 2, "manhattan": 1}
    wanted = -torch.dist(a, b, distance[name]) if name in distance else a @ b
    wanted = wanted / (a.norm() * b.norm()) if name == "cosine" else wanted
    assert abs(similarity(a.numpy(), b.numpy()) - wanted.item()) < 1e-5


def test_a_classifier_of_several_classes_scores_nothing(tmp_path):
    model = find_pooled_model(classifier(tmp_path, "ForSequenceClassification", 3), "auto")
    with pytest.raises(ConfigError, match="one label, and this one has 3"):
        comparison([("a", "b")], model, lambda: Tokenizer(tmp_path), 100, PoolingParams())
