"""A certificate authority of a collector's own, in a folder: `tracer collect --make-ca DIR`.

    ca.pem, ca.key     the authority, for ten years; made once
    collector.pem      the collector's certificate and key, for a year, of the names under which it is reached
    agent.pem          what agents need, in one file: address, token, authority, a certificate and its key
    operator.p12       the same certificate for a browser, without a password
    token              the token, where none was given

Whatever is missing, is about to expire, or has other names than asked for is made anew at the collector's start, and
while it runs; agents trust the authority, so another certificate of the collector needs nothing of them. Where `ca.key`
was taken away, what there is stays in use.

The agents' certificate is one for all, for clients only: with it nobody can pose as the collector. To lock out whoever
has it, remove the folder and give agents the new bundle.

Source: RFC 5280 §4.2.1 (extensions).
"""

import ipaddress
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tracer.errors import InputError
from tracer.private_files import write_durably
from tracer.tls import read_bundle
from tracer.tokens import make_up_token

AUTHORITY_LIFE = timedelta(days=3652)
COLLECTOR_LIFE = timedelta(days=365)
EARLIER = timedelta(days=1)
"""By which certificates are valid before they are made: clocks of hosts may be behind."""
LEAST_SHARE = 3
"""One part of so many of its life is left when a certificate is made anew."""
HEADER = (
    "What an agent of Twintap needs to send to its collector. Whoever has it can do so: let only the agent read it.\n"
    "On each host: tracer capture -i eth0 --bundle agent.pem\n"
)


@dataclass(frozen=True, slots=True)
class AuthorityFiles:
    """The files of an authority's folder."""

    folder: Path

    @property
    def ca(self) -> Path:
        """Whom agents and collector trust."""
        return self.folder / "ca.pem"

    @property
    def ca_key(self) -> Path:
        """What certificates are signed with."""
        return self.folder / "ca.key"

    @property
    def collector(self) -> Path:
        """The collector's certificate and key."""
        return self.folder / "collector.pem"

    @property
    def agent(self) -> Path:
        """The agents' bundle."""
        return self.folder / "agent.pem"

    @property
    def operator(self) -> Path:
        """The agents' certificate for a browser."""
        return self.folder / "operator.p12"

    @property
    def token(self) -> Path:
        """The token, where none was given."""
        return self.folder / "token"


@dataclass(frozen=True, slots=True)
class _Signer:
    """An authority's certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def prepare_authority(folder: Path, names: tuple[str, ...], url: str, token: str, now: datetime) -> list[str]:
    """Make what is missing or about to expire in an authority's folder; a line for the operator on what was made.

    Arguments: `names` (DNS names and addresses) that the collector's certificate has; `url` and `token` for agents.
    Raises: InputError for files that are damaged; OSError.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    files, made = AuthorityFiles(folder), []
    if not files.ca.exists():
        _make_authority(files, now)
        made.append(f"a new certificate authority is in {folder}")
    if not files.ca_key.exists():
        return []
    signer = _read_signer(files)
    if not _is_good(files.collector, names, signer, now):
        _make_collector(files, signer, names, now)
        made.append(f"a certificate for {', '.join(names)} is in {files.collector}")
    if _make_bundle(files, signer, url, token, now):
        made.append(f"agents need {files.agent}: copy it to each host, then: tracer capture -i eth0 --bundle agent.pem")
    return made


def own_token(folder: Path) -> str:
    """The token of an authority's folder; made up, if there is none. Raises: OSError."""
    file = AuthorityFiles(folder).token
    if not file.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(file, make_up_token() + "\n")
    return file.read_text().strip()


def _make_authority(files: AuthorityFiles, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"Twintap authority {secrets.token_hex(4)}")])
    certificate = (
        _builder(name, name, key, now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    write_durably(files.ca_key, _key_text(key))
    write_durably(files.ca, _text(certificate))


def _make_collector(files: AuthorityFiles, signer: _Signer, names: tuple[str, ...], now: datetime) -> None:
    alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
    usage = ExtendedKeyUsageOID.SERVER_AUTH
    key, certificate = _sign(signer, "Twintap collector", usage, COLLECTOR_LIFE, now, alternatives)
    write_durably(files.collector, _text(certificate) + _key_text(key))


def _make_bundle(files: AuthorityFiles, signer: _Signer, url: str, token: str, now: datetime) -> bool:
    """Write the agents' bundle, and the browser's file, unless they are as they should be; whether it was."""
    lines = f"{HEADER}Collector: {url}\nToken: {token}\n"
    if _is_good(files.agent, (), signer, now):
        known = read_bundle(files.agent)
        if (known.url, known.token) == (url, token) and files.operator.exists():
            return False
        text = files.agent.read_text()
        write_durably(files.agent, lines + text[text.index("-----BEGIN") :])
        certificate = x509.load_pem_x509_certificate(text.encode())
        key = load_pem_private_key(text.encode(), None)
    else:
        key, certificate = _sign(signer, "Twintap agent", ExtendedKeyUsageOID.CLIENT_AUTH, AUTHORITY_LIFE, now)
        write_durably(files.agent, lines + _text(certificate) + _key_text(key) + _text(signer.certificate))
    if isinstance(key, ec.EllipticCurvePrivateKey):
        name = b"Twintap operator"
        packed = serialize_key_and_certificates(name, key, certificate, [signer.certificate], NoEncryption())
        write_durably(files.operator, packed)
    return True


def _sign(
    signer: _Signer,
    name: str,
    usage: x509.ObjectIdentifier,
    life: timedelta,
    now: datetime,
    alternatives: x509.SubjectAlternativeName | None = None,
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """A key and a certificate of it, which ends with the authority's at the latest."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    life = min(life, signer.certificate.not_valid_after_utc - now)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        _builder(subject, signer.certificate.subject, key, now, life)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(issuer, critical=False)
    )
    if alternatives is not None:
        builder = builder.add_extension(alternatives, critical=False)
    return key, builder.sign(signer.key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, life: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + life)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _is_good(path: Path, names: tuple[str, ...], signer: _Signer, now: datetime) -> bool:
    """Whether a file has a certificate of this authority with these names, whose life is not near its end."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        found.verify_directly_issued_by(signer.certificate)
        listed = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value if names else ()
    except (OSError, ValueError, TypeError, x509.ExtensionNotFound, InvalidSignature):
        return False
    life = found.not_valid_after_utc - found.not_valid_before_utc
    is_fresh = found.not_valid_before_utc <= now <= found.not_valid_after_utc - life / LEAST_SHARE
    ends_with_authority = found.not_valid_after_utc == signer.certificate.not_valid_after_utc
    return (is_fresh or ends_with_authority) and set(listed) >= {_general_name(name) for name in names}


def _read_signer(files: AuthorityFiles) -> _Signer:
    """Raises: InputError."""
    try:
        certificate = x509.load_pem_x509_certificate(files.ca.read_bytes())
        key = load_pem_private_key(files.ca_key.read_bytes(), None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise InputError(f"{files.ca} and {files.ca_key} are no authority", "give --make-ca an empty folder")
    return _Signer(certificate, key)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def check_names(names: tuple[str, ...]) -> None:
    """Raises: InputError for what can be no name in a certificate."""
    for name in names:
        try:
            _general_name(name)
        except ValueError:
            hint = "give a DNS name in ASCII, or an address"
            raise InputError(f"{name!r} is no name for a certificate", hint) from None


def _text(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_text(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
