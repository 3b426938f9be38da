//! The command line. It is written by a program, so each option has one form.

use std::net::SocketAddr;

use twintap_capture::policy::PayloadPolicy;

/// What to capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    pub interfaces: Vec<String>,
    /// Its name in the trace.
    pub host: String,
    pub policy: PayloadPolicy,
    /// Endpoints whose packets are left out.
    pub excluded: Vec<SocketAddr>,
    /// Bytes of rules at the beginning of standard input.
    pub rules_len: u64,
    /// Nothing is overwritten.
    pub keeps_secrets: bool,
    /// What to record of who owns connections.
    pub owners: Owners,
}

/// What is recorded of who owns connections, and so what has to be seen of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owners {
    None,
    /// What the kernel says to everybody.
    Users,
    /// Also other users' processes.
    Processes,
}

/// Reads the words after the program's name. The error is a clause for the operator.
pub fn read(words: &[String]) -> Result<Arguments, String> {
    let mut found = Arguments {
        interfaces: Vec::new(),
        host: String::new(),
        policy: PayloadPolicy::Heads,
        excluded: Vec::new(),
        rules_len: 0,
        keeps_secrets: false,
        owners: Owners::Users,
    };
    let mut words = words.iter();
    while let Some(option) = words.next() {
        if option == "--keep-secrets" {
            found.keeps_secrets = true;
            continue;
        }
        if option == "--no-owners" {
            found.owners = Owners::None;
            continue;
        }
        if option == "--processes" {
            found.owners = Owners::Processes;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
        match option.as_str() {
            "--interface" => found.interfaces.push(value.clone()),
            "--host" => found.host.clone_from(value),
            "--payload" => found.policy = value.parse().map_err(|error| format!("{error}"))?,
            "--exclude" => found.excluded.push(parse(option, value)?),
            "--rules-len" => found.rules_len = parse(option, value)?,
            _ => return Err(format!("no option {option}")),
        }
    }
    if found.interfaces.is_empty() || found.host.is_empty() {
        return Err("--interface and --host are needed".into());
    }
    Ok(found)
}

fn parse<T: std::str::FromStr>(option: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{option} cannot be {value:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<Arguments, String> {
        read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn every_option_is_read() {
        let line = "--interface eth0 --interface lo --host web1 --payload none --exclude 10.0.0.1:22 \
                    --exclude [fe80::1]:5 --rules-len 7 --keep-secrets --no-owners";
        let expected = Arguments {
            interfaces: vec!["eth0".into(), "lo".into()],
            host: "web1".into(),
            policy: PayloadPolicy::None,
            excluded: vec![
                "10.0.0.1:22".parse().expect("IPv4"),
                "[fe80::1]:5".parse().expect("IPv6"),
            ],
            rules_len: 7,
            keeps_secrets: true,
            owners: Owners::None,
        };
        assert_eq!(read_line(line), Ok(expected));
    }

    #[test]
    fn users_are_recorded_unless_processes_are_wanted() {
        let owners = |more: &str| read_line(&format!("--interface eth0 --host a{more}")).map(|found| found.owners);
        assert_eq!(owners(""), Ok(Owners::Users));
        assert_eq!(owners(" --processes"), Ok(Owners::Processes));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("--interface", "--interface needs a value"),
            ("--interface eth0", "--interface and --host are needed"),
            ("--payload all", "no payload policy 'all'"),
            ("--exclude web1:22", "--exclude cannot be \"web1:22\""),
            ("--rules-len -1", "--rules-len cannot be \"-1\""),
            ("--write x", "no option --write"),
        ];
        for (line, expected) in cases {
            assert_eq!(read_line(line), Err(expected.to_owned()), "{line}");
        }
    }
}
