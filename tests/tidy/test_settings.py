"""No setting is a lie: what a configuration holds is read somewhere in the product.

That every setting has a field there, or says of itself that it changes nothing, is shown in
`tests.unit.config.test_model`.
"""

import ast
from dataclasses import fields

from config.model import BrokerConfig, TopicConfig
from config.topic_keys import TOPIC_KEYS
from tests.tidy.tree import PACKAGES, python_files, tree


def attributes_read() -> set[str]:
    """Every `something.name` that the product reads."""
    return {
        node.attr
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def read_by_name() -> set[str]:
    """Broker settings that topics are resolved from, by their names."""
    return {name for key in TOPIC_KEYS.values() for name, _ in key.synonyms}


def test_every_field_is_read() -> None:
    read = attributes_read() | {name.replace(".", "_") for name in read_by_name()}
    names = [field.name for config in (BrokerConfig, TopicConfig) for field in fields(config)]
    assert [name for name in names if name not in read] == []
