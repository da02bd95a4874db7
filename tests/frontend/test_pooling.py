"""Numbers of texts: the words before a text, what becomes of its vectors, which pairs are compared, and decisions."""

import json
import math

import numpy
import pytest
import torch
from builders.cases import for_each
from builders.later import Later
from builders.pooled_models import ENCODERS, classifier, embedding_model, encoder, reranker
from builders.runner_harness import engine_of, prompt
from tokenizers.processors import TemplateProcessing

from penstock import PoolingParams, Tokenizer
from penstock.frontend.http.endpoints.numbers.rerank import shortened
from penstock.frontend.models.pooled_model import PooledModel, find_pooled_model
from penstock.frontend.parsing.families import REASONING
from penstock.frontend.pooling.call_checks import checked_for_one
from penstock.frontend.pooling.decide import LabelTree, without_thought
from penstock.frontend.pooling.door import PoolingDoor, activated
from penstock.frontend.pooling.scores import SIMILARITIES, PairWriter, comparison, cosine, text_pairs
from penstock.frontend.requests.prompts import ParsedPrompt
from penstock.protocol.errors import ConfigError, LimitError, RequestError
from penstock.protocol.memory_plan import MemoryPlan
from penstock.protocol.pooling.form import PoolingForm, Vectors, WantedVectors
from penstock.protocol.pooling.outputs import PoolingOutput, PoolingRequestOutput
from penstock.worker.start.load import load_model


def test_an_answer_begins_behind_an_empty_thought():
    qwen, channels = REASONING["qwen3"], REASONING["gpt-oss"]
    assert without_thought("<|im_start|>assistant\n", None) == ""
    assert without_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n", qwen) == ""
    assert without_thought("<|im_start|>assistant\n<think>\n", qwen) == "\n</think>\n\n"
    assert without_thought("<|im_start|>assistant\n", qwen) == "<think>\n\n</think>\n\n"
    assert without_thought("<|start|>assistant", channels) == "<|channel|>final<|message|>"


def test_a_label_of_several_tokens_has_their_joint_probability_in_each_spelling():
    tree = LabelTree([[(1, 2), (9,)], [(1, 3)]])
    assert tree.nodes == {(): [1, 9], (1,): [2, 3]}
    first, second = tree.logprobs([[math.log(0.5), math.log(0.1)], [math.log(0.2), math.log(0.4)]])
    assert abs(math.exp(first) - (0.5 * 0.2 + 0.1)) < 1e-12
    assert abs(math.exp(second) - 0.5 * 0.4) < 1e-12


PLAN = MemoryPlan("cpu", "", 0, 0, 0, [], 64, 64, 100, "float32", "fp32", vector_width=4)
ROW = numpy.array([[3.0, 0.0, 4.0, 12.0]], numpy.float32)


def door(**said) -> PoolingDoor:
    return PoolingDoor(PooledModel(PoolingForm(["mean"]), said.pop("task", "embed"), **said), PLAN)


def finished(given: PoolingDoor, **params) -> list[float]:
    return given.finished(Vectors(0, 4, ROW.tobytes()), PoolingParams(**params)).astype(float).round(4).tolist()


@for_each("said, params, expected", [
    ({}, {}, [3.0, 0.0, 4.0, 12.0]),
    ({"normalizes": True}, {}, [0.2308, 0.0, 0.3077, 0.9231]),
    ({}, {"normalize": True}, [0.2308, 0.0, 0.3077, 0.9231]),
    ({"normalizes": True}, {"normalize": False}, [3.0, 0.0, 4.0, 12.0]),
    ({"normalizes": True}, {"dimensions": 3}, [0.6, 0.0, 0.8]),
    ({}, {"dimensions": 3}, [3.0, 0.0, 4.0]), ({"cut": 3}, {}, [3.0, 0.0, 4.0]),
    ({"cut": 3, "normalizes": True}, {}, [0.2308, 0.0, 0.3077]),
    ({"cut": 3, "normalizes": True}, {"normalize": True}, [0.6, 0.0, 0.8]),
    ({"cut": 1, "normalizes": True}, {"dimensions": 3}, [0.6, 0.0, 0.8]),
    ({"task": "classify", "activation": "softmax"}, {}, [0.0001, 0.0, 0.0003, 0.9995]),
    ({"task": "classify", "activation": "sigmoid"}, {}, [0.9526, 0.5, 0.982, 1.0]),
    ({"task": "classify"}, {}, [3.0, 0.0, 4.0, 12.0]),
    ({"task": "classify", "activation": "softmax"}, {"use_activation": False}, [3.0, 0.0, 4.0, 12.0]),
    ({}, {"by_token": True}, [[3.0, 0.0, 4.0, 12.0]]),
])  # fmt: skip
def test_vectors_become_what_the_model_says_or_the_request(said, params, expected):
    assert finished(door(**said), **params) == expected


PROMPTS = {"query": "query: ", "passage": "passage: "}


@for_each("said, params, expected", [
    ({}, {}, "a text"), ({"prompts": PROMPTS}, {}, "a text"),
    ({"prompts": PROMPTS, "default_prompt": "passage"}, {}, "passage: a text"),
    ({"prompts": PROMPTS, "default_prompt": "passage"}, {"prompt_name": "query"}, "query: a text"),
    ({}, {"instruction": "Find it"}, "Instruct: Find it\nQuery:a text"),
])  # fmt: skip
def test_a_text_gets_the_words_that_belong_before_it_and_ids_get_none(said, params, expected):
    asked = ParsedPrompt("a text", None, PoolingParams().as_sampling(), pooled=PoolingParams(**params))
    assert door(**said).worded(asked).text == expected
    ids = ParsedPrompt(None, [1, 2], PoolingParams().as_sampling(), pooled=PoolingParams(**params))
    assert door(**said).worded(ids) == ids


def test_a_prompt_that_the_model_hasnt_is_refused_with_those_that_it_has():
    asked = ParsedPrompt("a", None, PoolingParams().as_sampling(), pooled=PoolingParams(prompt_name="quer"))
    assert "its own are: passage, query. Did you mean query?" in door(prompts=PROMPTS).worded(asked).refusal


@for_each(
    "form, params", [(PoolingForm(["cls"]), PoolingParams(by_token=True)), (PoolingForm(["cls"], [], True), None)]
)
def test_a_call_of_one_result_refuses_those_of_each_token(form, params):
    with pytest.raises(RequestError, match="classify gives one result for each text.*encode, or /pooling"):
        checked_for_one("classify", PooledModel(form, "classify", labels=("a", "b")), params)


def test_a_text_that_is_too_long_is_refused_unless_it_may_be_cut():
    ids = list(range(70))
    with pytest.raises(LimitError, match="70 tokens, and the model takes 64"):
        door().fitting(ids, PoolingParams())
    with pytest.raises(LimitError, match="the model takes 32"):
        door(longest=32).fitting(ids, PoolingParams())
    assert door().fitting(ids, PoolingParams(truncate_prompt_tokens=-1)) == ids[:64]
    assert door().fitting(ids, PoolingParams(truncate_prompt_tokens=5)) == ids[:5]
    assert door().fitting(ids[:3], PoolingParams(truncate_prompt_tokens=5)) == ids[:3]
    with pytest.raises(RequestError, match="dimensions=5, and the model's vectors have 4 numbers"):
        door().fitting(ids[:3], PoolingParams(dimensions=5))


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
    prompts = {"prompts": {"q": "find: "}, "default_prompt_name": "q"}
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps(prompts))
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


def test_a_document_has_no_more_tokens_than_a_ranking_gives_it():
    tokenizer, text = Tokenizer.from_pretrained("pocket"), "one two three, four"
    ids = tokenizer.encode(text, add_special_tokens=False)
    for most in range(1, len(ids) + 2):
        [cut] = shortened(tokenizer, [text], most)
        assert tokenizer.encode(cut, add_special_tokens=False) == ids[:most]


def test_the_published_words_of_qwen3_reranker_go_by_its_name(tmp_path):
    folder = classifier(tmp_path / "Qwen3-Reranker-0.6B-seq-cls", "ForSequenceClassification", 1)
    assert find_pooled_model(folder, "auto").pairs == "qwen3"
    [one] = writer(folder).prompts([("what", "that")])
    text = Tokenizer(folder).decode(one.token_ids, skip_special_tokens=False)
    assert "passages that answer the query\n<Query>: what\n<Document>: that<|im_end|>" in text
    other = classifier(tmp_path / "other", "ForSequenceClassification", 1)
    assert find_pooled_model(other, "auto").pairs == "tokenizer"


def test_vectors_are_compared_by_their_cosine_with_the_models_own_words_before_a_query(tmp_path):
    folder = embedding_model(tmp_path / "model", pooling_mode_mean_tokens=True)
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"prompts": {"query": "q: ", "document": ""}}))
    model = find_pooled_model(folder, "auto")
    pairs = text_pairs("a", ["b", "c", "b"])
    compared = comparison(pairs, model, lambda: Tokenizer(folder), 100, PoolingParams())
    [(queries, of_query), (documents, of_document)] = compared.groups
    assert (queries, of_query.prompt_name) == (["a"], "query")
    assert (documents, of_document.prompt_name) == (["b", "c"], "document")
    told = comparison(pairs, model, lambda: Tokenizer(folder), 100, PoolingParams(instruction="Find it"))
    assert [(own.instruction, own.prompt_name) for _, own in told.groups] == [("Find it", None), (None, "document")]

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
