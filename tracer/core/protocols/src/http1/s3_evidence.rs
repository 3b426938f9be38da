//! Evidence in a head that its message is S3's: in a header, with the part of it that shows this without a secret, or in
//! the parameters of a presigned URL.
//!
//! Only headers count that no other service of AWS's has: a signature of the scope `s3` or of version 2, and those
//! `x-amz-…` that are about buckets and objects or name S3's answers. `x-amz-date`, `x-amz-security-token` or `x-amz-target`
//! do not: DynamoDB has them as well.
//!
//! Limits: `x-amz-content-sha256` is also in requests to Glacier and OpenSearch Serverless; presigned URLs of version 4 are
//! also given out by Polly and IoT. STS and others whose requests name an `Action` are recognised as not S3's.
//! Source: Amazon S3 API Reference, "Common request headers", "Common response headers", "Authenticating requests (AWS
//! Signature Version 4)"; RGW and MinIO answer with the same headers.

use std::ops::Range;

use memchr::{memchr, memmem};

use super::flag;

/// What a header shows.
pub(super) struct Evidence {
    /// Bits of `Head::flags`.
    pub flags: u8,
    /// The parts of its value that, one behind the other, show the same.
    pub shown: [Range<usize>; 2],
}

const PREFIX: &[u8] = b"x-amz-";
const COPY_SOURCE: &[u8] = b"copy-source";
/// How the names go on; those that end in `-` begin several.
const NAMES: [&[u8]; 32] = [
    b"content-sha256", // the most frequent first
    b"request-id",
    b"id-2",
    b"abort-",
    b"acl",
    b"bucket-region",
    b"bypass-governance-retention",
    b"checksum-",
    COPY_SOURCE,
    b"copy-source-",
    b"decoded-content-length",
    b"delete-marker",
    b"expected-bucket-owner",
    b"expiration",
    b"grant-",
    b"meta-",
    b"metadata-directive",
    b"mp-",
    b"object-",
    b"optional-object-attributes",
    b"range",
    b"request-payer",
    b"restore",
    b"sdk-checksum-algorithm",
    b"server-side-encryption",
    b"server-side-encryption-",
    b"source-expected-bucket-owner",
    b"storage-class",
    b"tagging",
    b"tagging-",
    b"version-id",
    b"website-redirect-location",
];
const VERSION_2: &[u8] = b"AWS";
const VERSION_4: &[u8] = b"AWS4-";
/// The end of a credential's scope: the service, then this word.
const SCOPES: [&[u8]; 3] = [
    b"/s3/aws4_request",
    b"/s3express/aws4_request",
    b"/s3-outposts/aws4_request",
];

/// What the header shows of S3 beside what `known` flags show, if anything.
pub(super) fn of_header(name: &[u8], value: &[u8], known: u8) -> Option<Evidence> {
    if known & flag::S3 != 0 && name.len() != PREFIX.len() + COPY_SOURCE.len() {
        return None;
    }
    match name.first()? {
        b'x' | b'X' => of_name(name),
        b'a' | b'A' if name.eq_ignore_ascii_case(b"authorization") => of_authorization(value),
        _ => None,
    }
}

/// Bits of `Head::flags` that the parameters of a request's target show.
pub(super) fn of_target(target: &[u8]) -> u8 {
    let query = memchr(b'?', target).map_or(&b""[..], |at| &target[at..]);
    let has = |text: &[u8]| memmem::find(query, text).is_some();
    let is_presigned = || has(b"X-Amz-Algorithm=AWS4-") || has(b"AWSAccessKeyId=") && has(b"Signature=");
    if !query.is_empty() && is_presigned() && !has(b"Action=") {
        flag::S3
    } else {
        0
    }
}

fn of_name(name: &[u8]) -> Option<Evidence> {
    let (prefix, rest) = name.split_at_checked(PREFIX.len())?;
    let is_named = |known: &[u8]| match known.strip_suffix(b"-") {
        Some(_) => rest.len() > known.len() && rest[..known.len()].eq_ignore_ascii_case(known),
        None => rest.eq_ignore_ascii_case(known),
    };
    if !prefix.eq_ignore_ascii_case(PREFIX) || !NAMES.into_iter().any(is_named) {
        return None;
    }
    let is_copy = rest.eq_ignore_ascii_case(COPY_SOURCE);
    Some(Evidence {
        flags: flag::S3 | if is_copy { flag::S3_COPY } else { 0 },
        shown: [0..0, 0..0],
    })
}

fn of_authorization(value: &[u8]) -> Option<Evidence> {
    let shown = if value.split(|&byte| byte == b' ').next() == Some(VERSION_2) {
        [0..VERSION_2.len(), 0..0]
    } else if value.starts_with(VERSION_4) {
        let found = |scope: &[u8]| memmem::find(value, scope).map(|at| at..at + scope.len());
        [0..VERSION_4.len(), SCOPES.into_iter().find_map(found)?]
    } else {
        return None;
    };
    Some(Evidence { flags: flag::S3, shown })
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str =
        "AWS4-HMAC-SHA256 Credential=AKIA/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=ab";

    #[test]
    fn headers_of_s3_show_it_and_those_that_others_have_do_not() {
        let cases = [
            ("Authorization", V4, flag::S3),
            ("authorization", "AWS AKIA:abc=", flag::S3),
            ("X-Amz-Content-SHA256", "UNSIGNED-PAYLOAD", flag::S3),
            ("x-amz-request-id", "tx0", flag::S3),
            ("x-amz-meta-a", "", flag::S3),
            ("x-amz-copy-source", "/b/k", flag::S3 | flag::S3_COPY),
            ("x-amz-copy-source-range", "bytes=0-9", flag::S3),
            (
                "Authorization",
                "AWS4-HMAC-SHA256 Credential=AKIA/20260101/eu/dynamodb/aws4_request",
                0,
            ),
            ("Authorization", "xxxxxxxxxxxxxxxxx", 0),
            ("Authorization", "AWSX a", 0),
            ("x-amz-date", "20260101T000000Z", 0),
            ("x-amz-meta-", "", 0),
            ("x-amz-cf-id", "a", 0),
            ("x-amz-target", "DynamoDB_20120810.GetItem", 0),
            ("x-amzn-requestid", "a", 0),
            ("x-am", "", 0),
        ];
        for (name, value, flags) in cases {
            let found = of_header(name.as_bytes(), value.as_bytes(), 0);
            assert_eq!(found.map_or(0, |evidence| evidence.flags), flags, "{name}: {value}");
        }
    }

    #[test]
    fn presigned_urls_show_it() {
        let cases = [
            ("/b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=xx", flag::S3),
            ("/b/k?AWSAccessKeyId=xx&Expires=1&Signature=xx", flag::S3),
            ("/?Action=GetCallerIdentity&X-Amz-Algorithm=AWS4-HMAC-SHA256", 0),
            ("/X-Amz-Algorithm=AWS4-HMAC-SHA256", 0),
            ("/b/k?uploads", 0),
            ("", 0),
        ];
        for (target, flags) in cases {
            assert_eq!(of_target(target.as_bytes()), flags, "{target}");
        }
    }

    #[test]
    fn what_is_shown_of_a_signature_holds_nothing_of_it_and_shows_the_same() {
        for (value, kept) in [(V4, "AWS4-/s3/aws4_request"), ("AWS AKIA:abc=", "AWS")] {
            let found = of_header(b"Authorization", value.as_bytes(), 0).expect("evidence");
            let shown: String = found.shown.map(|part| &value[part]).concat();
            assert_eq!(shown, kept);
            assert_eq!(
                of_header(b"Authorization", kept.as_bytes(), 0).expect("evidence").flags,
                found.flags
            );
        }
    }
}
