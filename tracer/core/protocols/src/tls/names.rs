//! Names of what a TLS handshake negotiates.
//!
//! Source: IANA, TLS Parameters (cipher suites, alerts), the suites that servers of today choose; RFC 8446 §4.2.1
//! (versions), §6 (alerts).

use std::borrow::Cow;

/// The name of a version as it is usually written; in hexadecimal if it has none.
pub fn version(version: u16) -> Cow<'static, str> {
    match version {
        0x0300 => "SSL 3.0".into(),
        0x0301 => "1.0".into(),
        0x0302 => "1.1".into(),
        0x0303 => "1.2".into(),
        0x0304 => "1.3".into(),
        other => format!("0x{other:04x}").into(),
    }
}

/// IANA's name of a cipher suite; its number in hexadecimal if it is not in the table.
pub fn cipher_suite(suite: u16) -> Cow<'static, str> {
    match CIPHER_SUITES.binary_search_by_key(&suite, |(number, _)| *number) {
        Ok(place) => CIPHER_SUITES[place].1.into(),
        Err(_) => format!("0x{suite:04x}").into(),
    }
}

/// The name of an alert's description; its number if it has none.
pub fn alert(description: u8) -> Cow<'static, str> {
    let found = ALERTS.iter().find(|(number, _)| *number == description);
    found.map_or_else(|| format!("alert {description}").into(), |(_, name)| (*name).into())
}

const ALERTS: &[(u8, &str)] = &[
    (0, "close_notify"),
    (10, "unexpected_message"),
    (20, "bad_record_mac"),
    (21, "decryption_failed"),
    (22, "record_overflow"),
    (30, "decompression_failure"),
    (40, "handshake_failure"),
    (41, "no_certificate"),
    (42, "bad_certificate"),
    (43, "unsupported_certificate"),
    (44, "certificate_revoked"),
    (45, "certificate_expired"),
    (46, "certificate_unknown"),
    (47, "illegal_parameter"),
    (48, "unknown_ca"),
    (49, "access_denied"),
    (50, "decode_error"),
    (51, "decrypt_error"),
    (60, "export_restriction"),
    (70, "protocol_version"),
    (71, "insufficient_security"),
    (80, "internal_error"),
    (86, "inappropriate_fallback"),
    (90, "user_canceled"),
    (100, "no_renegotiation"),
    (109, "missing_extension"),
    (110, "unsupported_extension"),
    (111, "certificate_unobtainable"),
    (112, "unrecognized_name"),
    (113, "bad_certificate_status_response"),
    (114, "bad_certificate_hash_value"),
    (115, "unknown_psk_identity"),
    (116, "certificate_required"),
    (120, "no_application_protocol"),
    (121, "ech_required"),
];

/// Ascending.
const CIPHER_SUITES: &[(u16, &str)] = &[
    (0x0001, "TLS_RSA_WITH_NULL_MD5"),
    (0x0002, "TLS_RSA_WITH_NULL_SHA"),
    (0x0005, "TLS_RSA_WITH_RC4_128_SHA"),
    (0x000a, "TLS_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x0016, "TLS_DHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0x002c, "TLS_PSK_WITH_NULL_SHA"),
    (0x002d, "TLS_DHE_PSK_WITH_NULL_SHA"),
    (0x002e, "TLS_RSA_PSK_WITH_NULL_SHA"),
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x0032, "TLS_DHE_DSS_WITH_AES_128_CBC_SHA"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x0038, "TLS_DHE_DSS_WITH_AES_256_CBC_SHA"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x003b, "TLS_RSA_WITH_NULL_SHA256"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x003d, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0040, "TLS_DHE_DSS_WITH_AES_128_CBC_SHA256"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x006a, "TLS_DHE_DSS_WITH_AES_256_CBC_SHA256"),
    (0x006b, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0x008c, "TLS_PSK_WITH_AES_128_CBC_SHA"),
    (0x008d, "TLS_PSK_WITH_AES_256_CBC_SHA"),
    (0x0090, "TLS_DHE_PSK_WITH_AES_128_CBC_SHA"),
    (0x0091, "TLS_DHE_PSK_WITH_AES_256_CBC_SHA"),
    (0x0094, "TLS_RSA_PSK_WITH_AES_128_CBC_SHA"),
    (0x0095, "TLS_RSA_PSK_WITH_AES_256_CBC_SHA"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x009e, "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009f, "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0x00a2, "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256"),
    (0x00a3, "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384"),
    (0x00a8, "TLS_PSK_WITH_AES_128_GCM_SHA256"),
    (0x00a9, "TLS_PSK_WITH_AES_256_GCM_SHA384"),
    (0x00aa, "TLS_DHE_PSK_WITH_AES_128_GCM_SHA256"),
    (0x00ab, "TLS_DHE_PSK_WITH_AES_256_GCM_SHA384"),
    (0x00ac, "TLS_RSA_PSK_WITH_AES_128_GCM_SHA256"),
    (0x00ad, "TLS_RSA_PSK_WITH_AES_256_GCM_SHA384"),
    (0x00ae, "TLS_PSK_WITH_AES_128_CBC_SHA256"),
    (0x00af, "TLS_PSK_WITH_AES_256_CBC_SHA384"),
    (0x00b0, "TLS_PSK_WITH_NULL_SHA256"),
    (0x00b1, "TLS_PSK_WITH_NULL_SHA384"),
    (0x00b2, "TLS_DHE_PSK_WITH_AES_128_CBC_SHA256"),
    (0x00b3, "TLS_DHE_PSK_WITH_AES_256_CBC_SHA384"),
    (0x00b4, "TLS_DHE_PSK_WITH_NULL_SHA256"),
    (0x00b5, "TLS_DHE_PSK_WITH_NULL_SHA384"),
    (0x00b6, "TLS_RSA_PSK_WITH_AES_128_CBC_SHA256"),
    (0x00b7, "TLS_RSA_PSK_WITH_AES_256_CBC_SHA384"),
    (0x00b8, "TLS_RSA_PSK_WITH_NULL_SHA256"),
    (0x00b9, "TLS_RSA_PSK_WITH_NULL_SHA384"),
    (0x1301, "TLS_AES_128_GCM_SHA256"),
    (0x1302, "TLS_AES_256_GCM_SHA384"),
    (0x1303, "TLS_CHACHA20_POLY1305_SHA256"),
    (0x1304, "TLS_AES_128_CCM_SHA256"),
    (0x1305, "TLS_AES_128_CCM_8_SHA256"),
    (0xc006, "TLS_ECDHE_ECDSA_WITH_NULL_SHA"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc010, "TLS_ECDHE_RSA_WITH_NULL_SHA"),
    (0xc012, "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0xc02b, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    (0xc02c, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    (0xc02f, "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
    (0xc030, "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"),
    (0xc035, "TLS_ECDHE_PSK_WITH_AES_128_CBC_SHA"),
    (0xc036, "TLS_ECDHE_PSK_WITH_AES_256_CBC_SHA"),
    (0xc037, "TLS_ECDHE_PSK_WITH_AES_128_CBC_SHA256"),
    (0xc038, "TLS_ECDHE_PSK_WITH_AES_256_CBC_SHA384"),
    (0xc039, "TLS_ECDHE_PSK_WITH_NULL_SHA"),
    (0xc03a, "TLS_ECDHE_PSK_WITH_NULL_SHA256"),
    (0xc03b, "TLS_ECDHE_PSK_WITH_NULL_SHA384"),
    (0xc09c, "TLS_RSA_WITH_AES_128_CCM"),
    (0xc09d, "TLS_RSA_WITH_AES_256_CCM"),
    (0xc09e, "TLS_DHE_RSA_WITH_AES_128_CCM"),
    (0xc09f, "TLS_DHE_RSA_WITH_AES_256_CCM"),
    (0xc0a0, "TLS_RSA_WITH_AES_128_CCM_8"),
    (0xc0a1, "TLS_RSA_WITH_AES_256_CCM_8"),
    (0xc0a2, "TLS_DHE_RSA_WITH_AES_128_CCM_8"),
    (0xc0a3, "TLS_DHE_RSA_WITH_AES_256_CCM_8"),
    (0xc0a4, "TLS_PSK_WITH_AES_128_CCM"),
    (0xc0a5, "TLS_PSK_WITH_AES_256_CCM"),
    (0xc0a6, "TLS_DHE_PSK_WITH_AES_128_CCM"),
    (0xc0a7, "TLS_DHE_PSK_WITH_AES_256_CCM"),
    (0xc0a8, "TLS_PSK_WITH_AES_128_CCM_8"),
    (0xc0a9, "TLS_PSK_WITH_AES_256_CCM_8"),
    (0xc0aa, "TLS_PSK_DHE_WITH_AES_128_CCM_8"),
    (0xc0ab, "TLS_PSK_DHE_WITH_AES_256_CCM_8"),
    (0xc0ac, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM"),
    (0xc0ad, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM"),
    (0xc0ae, "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8"),
    (0xc0af, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8"),
    (0xcca8, "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xcca9, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccaa, "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccab, "TLS_PSK_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccac, "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccad, "TLS_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256"),
    (0xccae, "TLS_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_iana_and_what_has_none_is_a_number() {
        assert!(CIPHER_SUITES.is_sorted_by_key(|(number, _)| *number));
        assert_eq!(cipher_suite(0x1301), "TLS_AES_128_GCM_SHA256");
        assert_eq!(cipher_suite(0xc030), "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384");
        assert_eq!(cipher_suite(0xfafa), "0xfafa");
        assert_eq!((alert(48), alert(200)), ("unknown_ca".into(), "alert 200".into()));
        assert_eq!((version(0x0304), version(0x7f1c)), ("1.3".into(), "0x7f1c".into()));
    }
}
