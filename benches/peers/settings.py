"""One of our configs, with settings as `cloze train --set` takes them."""

import tomllib


def read(path, sets):
    """The config as dictionaries; of `KEY=VALUE`, the value is TOML."""
    with open(path, "rb") as file:
        config = tomllib.load(file)
    for setting in sets:
        key, value = setting.split("=", 1)
        *sections, last = key.split(".")
        table = config
        for section in sections:
            table = table.setdefault(section, {})
        table[last] = tomllib.loads(f"value = {value}")["value"]
    return config
