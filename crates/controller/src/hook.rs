//! Calls the hook that starts, enlarges and takes back machines: a command, or an address.
//!
//! A call has a thread of its own, so that nothing waits for a hook. A command that takes too long is killed with all
//! processes of its group, and so is one whose controller stops leading.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use fondaco_decisions::balance::HookAnswer;
use fondaco_os::command;
use fondaco_os::command::OUTPUT_BYTES_MAX;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::config::Hook;

/// How many characters of a reason are kept.
const REASON_CHARS_MAX: usize = 300;

/// Calls a hook, one call at a time.
pub(super) struct Caller {
    hook: Hook,
    timeout: Duration,
    answer: Arc<Mutex<Option<(u64, HookAnswer)>>>,
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The answer of a hook.
#[derive(Deserialize)]
struct Reply {
    state: ReplyState,
    http: Option<String>,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum ReplyState {
    Done,
    Pending,
    Failed,
}

impl Caller {
    pub(super) fn new(hook: Hook, timeout: Duration) -> Self {
        Self {
            hook,
            timeout,
            answer: Arc::default(),
            stopped: Arc::default(),
            thread: None,
        }
    }

    /// Whether a call is under way.
    pub(super) fn is_calling(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// The answer of the last call, once.
    pub(super) fn take(&self) -> Option<(u64, HookAnswer)> {
        self.answer.lock().take()
    }

    /// Begins the call for a request, unless another one is under way.
    pub(super) fn call(&mut self, number: u64, body: Vec<u8>) {
        if self.is_calling() {
            return;
        }
        let (hook, timeout) = (self.hook.clone(), self.timeout);
        let (answer, stopped) = (Arc::clone(&self.answer), Arc::clone(&self.stopped));
        let calling = move || {
            let found = match &hook {
                Hook::Command(command) => run(command, &body, timeout, &stopped),
                Hook::Url(url) => post(url, &body, timeout),
            };
            let found = found.unwrap_or_else(|reason| HookAnswer::Lost { reason: short(&reason) });
            *answer.lock() = Some((number, found));
        };
        match std::thread::Builder::new().name("hook".to_owned()).spawn(calling) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                let reason = format!("no thread can be started: {error}");
                *self.answer.lock() = Some((number, HookAnswer::Failed { reason }));
            }
        }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
        // A command is killed within a tick. A request over HTTP ends by itself.
        if let (Hook::Command(_), Some(thread)) = (&self.hook, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// # Errors
/// There is no answer, and why.
fn run(command: &[String], body: &[u8], timeout: Duration, stopped: &AtomicBool) -> Result<HookAnswer, String> {
    let (program, arguments) = command.split_first().ok_or("the command is empty")?;
    let stopped = || stopped.load(Relaxed).then_some("this controller stopped leading");
    let answer = command::run(Command::new(program).args(arguments), body, Some(timeout), &stopped)?;
    parse(&answer)
}

/// # Errors
/// There is no answer, and why.
fn post(url: &str, body: &[u8], timeout: Duration) -> Result<HookAnswer, String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(timeout))
        .http_status_as_error(false)
        .build()
        .into();
    let sent = agent.post(url).content_type("application/json").send(body);
    let mut reply = sent.map_err(|error| match error {
        ureq::Error::Timeout(_) => format!("no answer within {} s", timeout.as_secs_f64()),
        error => error.to_string(),
    })?;
    let text = reply
        .body_mut()
        .with_config()
        .limit(OUTPUT_BYTES_MAX as u64)
        .read_to_string();
    let text = text.map_err(|error| error.to_string())?;
    match reply.status() {
        status if status.is_success() => parse(&text),
        status => Err(format!("{status}: {text}")),
    }
}

/// # Errors
/// The text is no answer of a hook.
fn parse(text: &str) -> Result<HookAnswer, String> {
    let reply: Reply =
        serde_json::from_str(text).map_err(|error| format!("its answer is not understood: {error}: {text:?}"))?;
    Ok(match reply.state {
        ReplyState::Done => HookAnswer::Done { http: reply.http },
        ReplyState::Pending => HookAnswer::Pending,
        ReplyState::Failed => HookAnswer::Failed {
            reason: short(&reply.message.unwrap_or_else(|| "it does not say why".to_owned())),
        },
    })
}

/// The beginning of a reason, on one line.
fn short(reason: &str) -> String {
    let words: Vec<&str> = reason.split_whitespace().collect();
    words.join(" ").chars().take(REASON_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use fondaco_os::command::TICK;

    fn sh(script: &str, timeout: Duration) -> Result<HookAnswer, String> {
        let command = ["sh", "-c", script].map(str::to_owned);
        run(&command, b"{\"request\":\"c-1\"}", timeout, &AtomicBool::new(false))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn answers_are_understood_and_failures_have_reasons() {
        let done = sh(
            "read body; echo '{\"state\":\"done\",\"http\":\"a:1\",\"more\":1}'",
            LONG,
        );
        let http = Some("a:1".to_owned());
        assert_eq!(done, Ok(HookAnswer::Done { http }));
        assert_eq!(sh("echo '{\"state\":\"pending\"}'", LONG), Ok(HookAnswer::Pending));
        let failed = sh("printf %s '{\"state\":\"failed\",\"message\":\"no\\nquota\"}'", LONG);
        let reason = "no quota".to_owned();
        assert_eq!(failed, Ok(HookAnswer::Failed { reason }));
        for (script, reason) in [
            ("echo oops >&2; exit 3", "exit status: 3: oops"),
            ("echo rubbish", "not understood"),
            ("true", "not understood"),
            ("head -c 1000000 /dev/zero", "not understood"),
            ("kill -9 $$", "signal: 9"),
        ] {
            let error = sh(script, LONG).unwrap_err();
            assert!(error.contains(reason), "{script}: {}", short(&error));
        }
        let missing = ["/nowhere/hook".to_owned()];
        let error = run(&missing, b"", LONG, &AtomicBool::new(false)).unwrap_err();
        assert!(error.contains("cannot be started"), "{error}");
    }

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("child");
        let script = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let error = sh(&script, Duration::from_secs(5)).unwrap_err();
        assert!(error.contains("no answer within 5 s"), "{error}");
        let child = std::fs::read_to_string(&file).unwrap();
        let stat = format!("/proc/{}/stat", child.trim());
        let begun = Instant::now();
        let is_gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        while !is_gone() {
            assert!(begun.elapsed() < Duration::from_secs(30), "the child lives on");
            std::thread::sleep(TICK);
        }
    }

    #[test]
    fn a_dropped_caller_ends_its_call() {
        let command = ["sleep", "1000"].map(str::to_owned).to_vec();
        let mut caller = Caller::new(Hook::Command(command), LONG);
        caller.call(1, Vec::new());
        assert!(caller.is_calling());
        let begun = Instant::now();
        drop(caller);
        assert!(begun.elapsed() < Duration::from_secs(30));
    }
}
