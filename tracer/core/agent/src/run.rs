//! One capture, from the rules on standard input to the end of it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use twintap_capture::capture::{Capture, CaptureSettings};
use twintap_capture::clock_error::SkewedClock;
use twintap_capture::filter::Programs;
use twintap_capture::privileges;
use twintap_capture::segments::{Now, SegmentSettings};
use twintap_capture::timestamps::Timestamps;
use twintap_secrets::SecretRules;

use crate::arguments::{Arguments, Owners};

/// Without a beat for so long the connection is gone. The other end sends one every few seconds.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);
/// After the request to end, the longest time for the other end to read what was captured.
const LONGEST_END: Duration = Duration::from_secs(20);
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// How long an end of standard input waits at most before it is noticed.
const WAIT: Duration = Duration::from_millis(20);

/// A section holds so much time, so that the other end is not further behind.
const SECTION_AGE: Duration = Duration::from_millis(250);
const SECTION_BYTES: u64 = 4 << 20;
/// For bursts, of each interface.
const RING_BYTES: usize = 32 << 20;
/// More rules than this are none.
const RULES_LIMIT_BYTES: u64 = 1 << 20;

/// What standard input has said.
struct Beats {
    began: Instant,
    /// Milliseconds from `began` to the last beat.
    last_ms: AtomicU64,
    ended: AtomicBool,
}

impl Beats {
    fn note(&self) {
        let elapsed_ms = self.began.elapsed().as_millis() as u64;
        self.last_ms.store(elapsed_ms, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(last)
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

/// Prints a line for the other end; one that cannot be printed has no reader.
pub fn say(kind: &str, text: &str) {
    let _ = writeln!(io::stderr(), "{kind} {text}");
}

/// Captures until standard input ends. The error is a clause for the operator, with what to do.
pub fn run(arguments: Arguments) -> Result<(), String> {
    drop_privileges(arguments.owners);
    let rules = read_rules(&arguments)?;
    let beats = listen()?;
    let stream = io::stdout()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| error.to_string())?;
    let capture = start(arguments, rules, File::from(stream))?;
    say("ready", env!("CARGO_PKG_VERSION"));
    drive(&capture, &beats);
    match capture.error() {
        Some(error) => Err(format!("{error}; {}", error.next_step())),
        None => Ok(()),
    }
}

/// Gives up all of root's power but what the capture takes; before there is another thread.
fn drop_privileges(owners: Owners) {
    let [search, trace] = privileges::FOR_PROCESSES;
    match owners {
        Owners::Processes => privileges::keep_only(&[privileges::NET_RAW, search, trace]),
        Owners::Users | Owners::None => privileges::keep_only(&[privileges::NET_RAW]),
    }
}

fn read_rules(arguments: &Arguments) -> Result<SecretRules, String> {
    if arguments.rules_len > RULES_LIMIT_BYTES {
        return Err(format!("rules of secrets longer than {RULES_LIMIT_BYTES} bytes"));
    }
    let mut text = vec![0; arguments.rules_len as usize];
    io::stdin()
        .lock()
        .read_exact(&mut text)
        .map_err(|error| format!("the rules of secrets did not arrive: {error}"))?;
    if arguments.keeps_secrets {
        return Ok(SecretRules::nothing());
    }
    SecretRules::with(&String::from_utf8_lossy(&text)).map_err(|error| format!("line {}: {}", error.line, error.what))
}

/// Starts the thread that reads the beats.
fn listen() -> Result<Arc<Beats>, String> {
    let beats = Arc::new(Beats {
        began: Instant::now(),
        last_ms: AtomicU64::new(0),
        ended: AtomicBool::new(false),
    });
    let noted = Arc::clone(&beats);
    let read = move || {
        let mut bytes = [0; 64];
        while matches!(io::stdin().lock().read(&mut bytes), Ok(len) if len > 0) {
            noted.note();
        }
        noted.ended.store(true, Ordering::Release);
    };
    let started = thread::Builder::new().name("beats".into()).spawn(read);
    started.map(|_| beats).map_err(|error| error.to_string())
}

fn start(arguments: Arguments, rules: SecretRules, stream: File) -> Result<Capture, String> {
    let snaplen = arguments.policy.snaplen();
    let settings = CaptureSettings {
        interface_names: arguments.interfaces,
        programs: Programs::built_in(snaplen),
        excluded: arguments.excluded,
        policy: arguments.policy,
        ring_bytes: RING_BYTES,
        rings_bytes: RING_BYTES,
        snaplen,
        with_owners: arguments.owners != Owners::None,
        owners_parts: 0,
        kept: None,
        timestamps: Timestamps::Software,
    };
    let segments = SegmentSettings {
        folder: PathBuf::new(),
        stream: Some(Arc::new(stream)),
        stem: arguments.host.clone(),
        host: arguments.host,
        application: concat!("twintap-agent ", env!("CARGO_PKG_VERSION")).into(),
        os: std::env::consts::OS.into(),
        addresses: Vec::new(),
        interfaces: Vec::new(),
        since_ns: 0,
        segment_bytes: SECTION_BYTES,
        segment_age: SECTION_AGE,
        first_number: 1,
        clock_error: SkewedClock::default(),
        secrets: Arc::new(rules),
    };
    Capture::start(&settings, segments).map_err(|error| match error.next_step() {
        next_step if next_step.is_empty() => error.to_string(),
        next_step => format!("{error}; {next_step}"),
    })
}

fn drive(capture: &Capture, beats: &Beats) {
    let mut status_due = Instant::now();
    let mut end_due = None;
    while !capture.wait(WAIT) {
        if beats.has_ended() && end_due.is_none() {
            capture.stop();
            end_due = Some(Instant::now() + LONGEST_END);
        }
        // The thread of the capture may wait for a reader that is gone: only the process's end ends that.
        if beats.silence() > LONGEST_SILENCE || end_due.is_some_and(|due| Instant::now() > due) {
            say("error", "the other end is gone");
            std::process::exit(i32::from(crate::EXIT_OPERATOR));
        }
        if Instant::now() >= status_due {
            status_due = Instant::now() + STATUS_INTERVAL;
            say_status(capture);
        }
    }
    say_status(capture);
}

fn say_status(capture: &Capture) {
    for notice in capture.take_notices() {
        say("notice", &notice);
    }
    let progress = capture.progress();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let text = format!(
        "packets={} dropped={} written_bytes={} host_ns={}",
        count(&progress.packets_count),
        count(&progress.dropped_count),
        count(&progress.totals.bytes_count),
        Now::read().host_ns
    );
    say("status", &text);
}
