"""The settings that a running broker can apply from a configuration that was read again.

The same settings may change as through the protocol (``dynamic`` in `config.broker_keys`). The plan
names the others, which wait for a restart.
"""

from collections.abc import Iterator
from dataclasses import replace
from types import MappingProxyType

from config.broker_keys import BROKER_KEYS
from config.model import BrokerConfig, Setting
from config.security.keys import scoped_key
from values.dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """The next configuration, without the settings made at run time, and the names that differ.

    The fields of `config` have their old values: `config.load.with_dynamic` derives new ones from
    its settings. `changed` and `needs_restart` are names of settings, `notices` the new ones
    about settings that do not apply.
    """

    config: BrokerConfig
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    notices: tuple[str, ...]

    @property
    def warnings(self) -> Iterator[str]:
        """What the operator has to know of the new configuration."""
        if self.needs_restart:
            yield f"changed, but needs a restart: {', '.join(self.needs_restart)}"
        yield from self.notices


def plan_reload(running: BrokerConfig, given: BrokerConfig, fresh: BrokerConfig) -> ReloadPlan:
    """The changes from `running` to `fresh`; `given` is the configuration at the start."""
    settings, secrets = dict(running.settings), dict(running.secrets)
    changed, needs_restart = [], []
    keys = dict(BROKER_KEYS)
    for name in (*running.settings, *given.settings, *fresh.settings):
        if (key_of_listener := scoped_key(name)) is not None:
            keys[name] = key_of_listener
    for name, key in keys.items():
        setting = fresh.settings.get(name)
        before = running if key.dynamic else given
        is_same = fresh.secrets.get(name) == before.secrets.get(name)
        if is_same and _text(setting) == _text(before.settings.get(name)):
            continue
        if not key.dynamic:
            needs_restart.append(name)
            continue
        changed.append(name)
        settings.pop(name, None)
        secrets.pop(name, None)
        if setting is not None:
            settings[name] = setting
        if name in fresh.secrets:
            secrets[name] = fresh.secrets[name]
    return ReloadPlan(
        config=replace(
            running,
            settings=MappingProxyType(settings),
            secrets=MappingProxyType(secrets),
            notices=fresh.notices,
        ),
        changed=tuple(changed),
        needs_restart=tuple(needs_restart),
        notices=tuple(one for one in fresh.notices if one not in running.notices),
    )


def _text(setting: Setting | None) -> str | None:
    return None if setting is None else setting.text
