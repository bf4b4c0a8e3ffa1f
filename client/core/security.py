"""Users, access rules and quotas of a cluster: this part of the admin client.

Source: KIP-554 (users), KIP-140 and KIP-290 (access rules), KIP-546 (quotas).
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any

from client.checks import check_text
from client.core.cluster import Cluster
from client.core.parts import check
from client.descriptions import Quota
from client.errors import BrokerRefused, ClientError, InvalidUse
from protocol.acl import Acl, AclFilter
from protocol.api.alter_client_quotas import AlterClientQuotasRequest, EntryData, OpData
from protocol.api.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.api.create_acls import AclCreation, CreateAclsRequest
from protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol.api.describe_acls import DescribeAclsRequest
from protocol.api.describe_client_quotas import DescribeClientQuotasRequest, EntityData
from protocol.api.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from protocol.error_codes import ErrorCode

SCRAM_MECHANISMS = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
"""The number on the wire and the hash function of each mechanism."""

ITERATIONS = 8192
_SALT_BYTES = 24
_PATTERNS_SINCE = 1


class SecurityAdmin:
    """The calls of `client.admin.Admin` about users, access rules and quotas."""

    _cluster: Cluster

    async def set_user(
        self,
        name: str,
        password: str,
        *,
        mechanism: str = "SCRAM-SHA-512",
        iterations: int = ITERATIONS,
    ) -> None:
        """Create a user or change the password; the password itself never leaves this process.

        Raises:
            InvalidUse: the mechanism is not SCRAM-SHA-256 or SCRAM-SHA-512.
            BrokerRefused: the name or the number of iterations (4096 to 16384) is not accepted.
        """
        check_text("name", name)
        check_text("password", password)
        number, hash_name = _mechanism(mechanism)
        salt = secrets.token_bytes(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
        change = ScramCredentialUpsertion(
            name=name, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
        )
        request = AlterUserScramCredentialsRequest(upsertions=[change])
        await self._alter_users(request, f"setting the password of {name!r}")

    async def change_password(
        self, name: str, password: str, *, iterations: int = ITERATIONS
    ) -> list[str]:
        """Change a user's password for each mechanism that the user has; these mechanisms.

        Kafka takes one mechanism of a user in a request, so each is a change of its own.

        Raises:
            BrokerRefused: there is no such user, or the change is refused.
            ClientError: some mechanisms have the new password and others the former one; the
                message names them.
        """
        check_text("name", name)
        check_text("password", password)
        changed: list[str] = []
        for mechanism, _ in (await self.users([name]))[name]:
            try:
                await self.set_user(name, password, mechanism=mechanism, iterations=iterations)
            except ClientError as error:
                if not changed:
                    raise
                raise ClientError(
                    f"{name!r} has the new password for {', '.join(changed)} and the former one "
                    f"for {mechanism} (change it once more): {error}",
                    broker=error.broker,
                ) from error
            changed.append(mechanism)
        return changed

    async def remove_user(self, name: str) -> None:
        """Remove all credentials of a user; connections that are open stay.

        Raises:
            BrokerRefused: there is no such user.
        """
        check_text("name", name)
        for mechanism, _ in (await self.users([name]))[name]:
            deletion = ScramCredentialDeletion(name=name, mechanism=_mechanism(mechanism)[0])
            request = AlterUserScramCredentialsRequest(deletions=[deletion])
            await self._alter_users(request, f"removing {name!r}")

    async def mechanisms_of(self, name: str) -> list[str]:
        """The mechanisms that a user has a password for, none if there is no such user.

        Raises:
            BrokerRefused: users are not served, or reading them is not allowed.
        """
        try:
            known = (await self.users([name]))[name]
        except BrokerRefused as error:
            if error.code is not ErrorCode.RESOURCE_NOT_FOUND:
                raise
            return []
        return [mechanism for mechanism, _ in known]

    async def users(self, names: Iterable[str] | None = None) -> dict[str, list[tuple[str, int]]]:
        """The mechanisms of each user, with their iterations; None asks for all users.

        Raises:
            BrokerRefused: a named user does not exist.
        """
        asked = None if names is None else [UserName(name=name) for name in names]
        response, address = await self._cluster.call_controller(
            DescribeUserScramCredentialsRequest(users=asked)
        )
        check("listing users", response, address)
        numbers = {number: mechanism for mechanism, (number, _) in SCRAM_MECHANISMS.items()}
        found = {}
        for result in response.results:
            check(f"describing user {result.user!r}", result, address)
            found[result.user] = [
                (numbers.get(info.mechanism, str(info.mechanism)), info.iterations)
                for info in result.credential_infos
            ]
        return found

    async def _alter_users(self, request: AlterUserScramCredentialsRequest, what: str) -> None:
        response, address = await self._cluster.call_controller(request)
        for result in response.results:
            check(what, result, address)

    async def add_rules(self, rules: Iterable[Acl]) -> None:
        """Put access rules in force.

        Raises:
            BrokerRefused: the first refusal; the other rules are in force.
        """
        rules = list(rules)
        request = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=rule.resource_type,
                    resource_name=rule.name,
                    resource_pattern_type=rule.pattern,
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission,
                )
                for rule in rules
            ]
        )
        response, address = await self._cluster.call_controller(
            request, min_version=_PATTERNS_SINCE
        )
        for rule, result in zip(rules, response.results, strict=True):
            check(f"adding the rule {rule}", result, address)

    async def rules(self, chosen: AclFilter | None = None) -> list[Acl]:
        """The access rules that a filter selects, by default all.

        Raises:
            BrokerRefused: the cluster has no authorizer.
        """
        request = DescribeAclsRequest(**_fields_of(chosen or AclFilter()))
        response, address = await self._cluster.call_controller(
            request, min_version=_PATTERNS_SINCE
        )
        check("listing access rules", response, address)
        return [_rule(resource, acl) for resource in response.resources for acl in resource.acls]

    async def remove_rules(self, chosen: AclFilter) -> list[Acl]:
        """Take the selected access rules out of force; the rules that were.

        Raises:
            BrokerRefused: the cluster has no authorizer.
        """
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**_fields_of(chosen))])
        response, address = await self._cluster.call_controller(
            request, min_version=_PATTERNS_SINCE
        )
        (result,) = response.filter_results
        check("removing access rules", result, address)
        for acl in result.matching_acls:
            check("removing an access rule", acl, address)
        return [_rule(acl, acl) for acl in result.matching_acls]

    async def alter_quotas(
        self, entity: Mapping[str, str | None], limits: Mapping[str, float | None]
    ) -> None:
        """Set limits of an entity, and remove those that are None.

        `entity` gives `user`, `client-id` or both, or `ip`, a name; None is the default, which
        counts for every name without limits of its own.

        Raises:
            BrokerRefused: there is no such entity or limit, or a value is out of its range.
        """
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=one) for kind, one in entity.items()],
            ops=[
                OpData(key=key, remove=True) if value is None else OpData(key=key, value=value)
                for key, value in limits.items()
            ],
        )
        request = AlterClientQuotasRequest(entries=[entry])
        response, address = await self._cluster.call_controller(request)
        for result in response.entries:
            check("changing a quota", result, address)

    async def quotas(self) -> list[Quota]:
        """All quotas."""
        response, address = await self._cluster.call_controller(DescribeClientQuotasRequest())
        check("listing quotas", response, address)
        return [
            Quota(
                entity={part.entity_type: part.entity_name for part in entry.entity},
                limits={value.key: value.value for value in entry.values},
            )
            for entry in response.entries or ()
        ]


def _fields_of(chosen: AclFilter) -> dict[str, Any]:
    """A filter as the fields that both requests have for it."""
    return {
        "resource_type_filter": chosen.resource_type,
        "resource_name_filter": chosen.name,
        "pattern_type_filter": chosen.pattern,
        "principal_filter": chosen.principal,
        "host_filter": chosen.host,
        "operation": chosen.operation,
        "permission_type": chosen.permission,
    }


def _rule(resource: Any, acl: Any) -> Acl:
    """A rule from the parts of an answer that describe the resource and the right."""
    return Acl(
        resource_type=resource.resource_type,
        name=resource.resource_name,
        pattern=resource.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission=acl.permission_type,
    )


def _mechanism(name: str) -> tuple[int, str]:
    if name not in SCRAM_MECHANISMS:
        raise InvalidUse(f"mechanism={name!r}: give one of {', '.join(SCRAM_MECHANISMS)}")
    return SCRAM_MECHANISMS[name]
