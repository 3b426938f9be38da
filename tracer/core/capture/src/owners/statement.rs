//! Owners as text, which a segment carries in comments of a Name Resolution Block: any reader of pcapng passes them by.
//!
//! ```text
//! twintap.owner process=nginx exe=/usr/sbin/nginx pid=812 start_ns=… uid=33 user=www-data unit=nginx.service
//! 10.0.0.1:80 10.0.0.2:4711 socket 1764165600123456789
//! ```
//!
//! The first line says who, and each of the others one end of a connection that it owns: local, remote, evidence, when
//! it was first seen. Values have `%XX` for spaces, `%` and what is not printable. `twintap.owners unreadable=N` counts
//! ends whose process was not found because this agent may not read `/proc/PID/fd`, and `left_out=N` those that were not
//! looked for because there were too many at once.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::key::Key;
use super::{Evidence, Holder, Owner};

/// Begins the comment of a holder, and that of the counts.
pub const OWNER_PREFIX: &str = "twintap.owner ";
pub const OWNERS_PREFIX: &str = "twintap.owners ";

/// A comment is not longer than this; a holder with more connections has several. Below pcapng's 65,535 bytes.
const COMMENT_BYTES: usize = 60_000;
/// Of a value.
const VALUE_BYTES: usize = 256;

/// The comments for these ends. `stamp` makes a stamp what the capture's packets have.
pub fn comments(
    owners: &[(Key, Owner)],
    unreadable_count: u64,
    left_out_count: u64,
    stamp: impl Fn(u64) -> u64,
) -> Vec<String> {
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, owner) in owners {
        let evidence = match owner.evidence {
            Evidence::Socket => "socket",
            Evidence::Listener => "listener",
        };
        let line = format!("\n{} {} {evidence} {}", key.local, key.remote, stamp(owner.seen_ns));
        lines.entry(holder_line(&owner.holder)).or_default().push(line);
    }
    let mut found = Vec::new();
    for (holder, ends) in lines {
        let mut comment = holder.clone();
        for end in ends {
            if comment.len() + end.len() > COMMENT_BYTES {
                found.push(std::mem::replace(&mut comment, holder.clone()));
            }
            comment.push_str(&end);
        }
        found.push(comment);
    }
    if unreadable_count > 0 || left_out_count > 0 {
        found.push(format!(
            "{OWNERS_PREFIX}unreadable={unreadable_count} left_out={left_out_count}"
        ));
    }
    found
}

fn holder_line(holder: &Holder) -> String {
    let mut line = OWNER_PREFIX.trim_end().to_owned();
    let number = |value: Option<u64>| value.map(|value| value.to_string());
    let fields = [
        ("process", holder.process.clone()),
        ("exe", holder.exe.clone()),
        ("pid", number(holder.pid.map(u64::from))),
        ("start_ns", number(holder.start_ns)),
        ("uid", number(holder.uid.map(u64::from))),
        ("user", holder.user.clone()),
        ("unit", holder.unit.clone()),
        ("container", holder.container.clone()),
        ("pod_uid", holder.pod_uid.clone()),
        ("pod", holder.pod.clone()),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            let _ = write!(line, " {name}={}", escape_text(&value));
        }
    }
    line
}

fn escape_text(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for byte in value.bytes().take(VALUE_BYTES) {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn key(port: u16) -> Key {
        Key {
            local: ([10, 0, 0, 1], 80).into(),
            remote: ([10, 0, 0, 2], port).into(),
        }
    }

    fn owner(process: &str, evidence: Evidence) -> Owner {
        let holder = Holder {
            process: Some(process.into()),
            pid: Some(7),
            ..Holder::default()
        };
        Owner {
            holder: Arc::new(holder),
            evidence,
            seen_ns: 5,
        }
    }

    #[test]
    fn ends_of_one_holder_share_a_comment() {
        let owners = [
            (key(1), owner("a b%", Evidence::Socket)),
            (key(2), owner("nginx", Evidence::Listener)),
            (key(3), owner("a b%", Evidence::Socket)),
        ];
        let expected = [
            "twintap.owner process=a%20b%25 pid=7\n10.0.0.1:80 10.0.0.2:1 socket 6\n10.0.0.1:80 10.0.0.2:3 socket 6",
            "twintap.owner process=nginx pid=7\n10.0.0.1:80 10.0.0.2:2 listener 6",
            "twintap.owners unreadable=3 left_out=4",
        ];
        assert_eq!(comments(&owners, 3, 4, |ns| ns + 1), expected);
        assert!(comments(&[], 0, 0, |ns| ns).is_empty());
    }

    #[test]
    fn comments_are_bounded() {
        let owners: Vec<_> = (0..5_000)
            .map(|port| (key(port), owner("nginx", Evidence::Socket)))
            .collect();
        let found = comments(&owners, 0, 0, |ns| ns);
        assert!(found.len() > 1 && found.iter().all(|comment| comment.len() <= COMMENT_BYTES));
        assert_eq!(
            found.iter().map(|comment| comment.lines().count() - 1).sum::<usize>(),
            5_000
        );
    }
}
