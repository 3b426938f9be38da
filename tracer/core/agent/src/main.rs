//! `twintap-agent`: captures this host and writes the capture to its standard output, for a program at the other end
//! of a pipe (`tracer record --ssh`).
//!
//! ```text
//! standard input    rules of secrets (--rules-len bytes), then beats: any bytes, at least every 60 s
//! standard output   pcapng sections, one every quarter of a second while there is traffic
//! standard error    `ready`, then a `status …` line twice a second; `notice …`, `error …`
//! ```
//!
//! It ends when standard input ends, and then writes what has arrived; or when the beats stay away, for then the
//! connection is gone, and nothing else would end it. It needs no other file, is linked statically, and writes none.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod arguments;
#[cfg(target_os = "linux")]
mod run;

use std::process::ExitCode;

/// Exit status for what the operator can mend, as that of `tracer`.
const EXIT_OPERATOR: u8 = 2;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    if given == ["--version"] {
        println!("twintap-agent {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    match arguments::read(&given).and_then(run::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            run::say("error", &message);
            ExitCode::from(EXIT_OPERATOR)
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("error live capture needs Linux");
    ExitCode::from(EXIT_OPERATOR)
}
