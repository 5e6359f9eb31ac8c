"""A service as most people write one: FastAPI with sentence-transformers, as `cargo xtask bench serve` asks it beside ours.

    python benches/peers/serve.py MODEL PORT

`POST /embed` with {"inputs": "a text"} answers [[0.1, …]], `GET /health` when the model is loaded. FastAPI runs the
handler in its thread pool, so that requests do not wait for one another's Python.
"""

import sys

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(sys.argv[1], device="cpu")
app = FastAPI()


class Body(BaseModel):
    inputs: str | list[str]


@app.post("/embed")
def embed(body: Body) -> list[list[float]]:
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    return model.encode(texts, normalize_embeddings=True, show_progress_bar=False).tolist()


@app.get("/health")
def health() -> dict:
    return {}


uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning", access_log=False)
