"""Asks a running `cloze serve` as its users' clients do, and compares what they get with what the routes answer.

    python clients.py http://127.0.0.1:8080

Needs openai, cohere and huggingface_hub. The models have to be those of `serve_clients.rs`.
"""

import sys

import cohere
import openai
import requests
from huggingface_hub import InferenceClient

address = sys.argv[1]
texts = ["the old man sat by the sea", "a sailor", "in paris, and then home again"]


def post(route, **body):
    answer = requests.post(address + route, json=body, timeout=60)
    assert answer.status_code == 200, (route, answer.status_code, answer.text)
    return answer.json()


def refused(kind, ask):
    try:
        ask()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


tasks = {model["task"]: model["name"] for model in requests.get(address + "/info", timeout=60).json()["models"]}

# OpenAI's asks for base64 unless told otherwise, and decodes it.
client = openai.OpenAI(base_url=address + "/v1", api_key="none", max_retries=0)
vectors = post("/embed", inputs=texts)
for encoding in ({}, {"encoding_format": "float"}):
    found = client.embeddings.create(model=tasks["embedding"], input=texts, **encoding)
    assert [len(one.embedding) for one in found.data] == [len(vector) for vector in vectors]
    for one, vector in zip(found.data, vectors):
        assert all(abs(a - b) < 1e-6 for a, b in zip(one.embedding, vector)), encoding
    assert found.usage.prompt_tokens == found.usage.total_tokens > 0
short = client.embeddings.create(model=tasks["embedding"], input=texts[0], dimensions=5)
assert len(short.data[0].embedding) == 5
names = [model.id for model in client.models.list()]
assert sorted(names) == sorted(set(names)) and tasks["embedding"] in names
assert client.models.retrieve(tasks["embedding"]).owned_by == "cloze"
error = refused(openai.NotFoundError, lambda: client.embeddings.create(model="other", input="a"))
assert error.param == "model", error.body
error = refused(openai.BadRequestError, lambda: client.embeddings.create(model=tasks["embedding"], input=[1, 2]))
assert "--ids" in str(error), error
error = refused(openai.BadRequestError, lambda: client.embeddings.create(model=tasks["embedding"], input=[]))

written = {"model": tasks["generation"], "prompt": texts[0], "max_tokens": 12, "temperature": 0}
whole = client.completions.create(**written)
streamed = list(client.completions.create(**written, stream=True))
assert "".join(part.choices[0].text for part in streamed) == whole.choices[0].text
assert streamed[-1].choices[0].finish_reason == whole.choices[0].finish_reason in ("stop", "length")
generated = post("/generate", inputs=texts[0], parameters={"max_new_tokens": 12, "do_sample": False})
assert generated["generated_text"] == whole.choices[0].text
scored = client.completions.create(**written, logprobs=3)
assert "".join(scored.choices[0].logprobs.tokens) == whole.choices[0].text
assert all(len(best) <= 3 for best in scored.choices[0].logprobs.top_logprobs)
several = client.completions.create(**{**written, "temperature": 1.0}, n=3, seed=7, stop=["e"])
assert len(several.choices) == 3 and not any("e" in choice.text for choice in several.choices)

# Cohere's, with each of its versions.
reranker = tasks["regression"]
ranks = post("/rerank", model=reranker, query="sea", texts=texts)
for version, more in ((cohere.ClientV2, {}), (cohere.Client, {"return_documents": True})):
    found = version(api_key="none", base_url=address).rerank(
        model=reranker, query="sea", documents=texts, top_n=2, **more)
    assert [one.index for one in found.results] == [rank["index"] for rank in ranks[:2]]
    assert all(abs(one.relevance_score - rank["score"]) < 1e-9 for one, rank in zip(found.results, ranks))
    if more:
        assert [one.document.text for one in found.results] == [texts[rank["index"]] for rank in ranks[:2]]

# Hugging Face's: the address of a route is the model.
def hub(route):
    return InferenceClient(model=address + route)


assert abs(hub("/embed").feature_extraction(texts[0])[0] - vectors[0]).max() < 1e-6
scores = hub("/similarity").sentence_similarity(texts[0], other_sentences=texts)
assert abs(scores[0] - 1) < 1e-5 and len(scores) == len(texts)
filled = hub("/fill-mask").fill_mask("the [MASK] sat by the sea", top_k=3)
assert len(filled) == 3 and filled[0].score >= filled[1].score and "[MASK]" not in filled[0].sequence
entities = hub("/tag").token_classification(texts[2])
assert all(texts[2][entity.start:entity.end] == entity.word for entity in entities)
context = texts[0]
answer = hub("/answer").question_answering(question="who sat", context=context)
assert context[answer.start:answer.end] == answer.answer
assert hub("/translate").translation(texts[0]).translation_text == post("/translate", inputs=texts[0])[0]["translation_text"]

print("all answers are right")
