//! Ctrl-C and SIGTERM: the first signal stops a command cleanly, the second one at once.

use anyhow::Context;
use fondaco_push::CancelToken;
use tokio::signal::unix::{SignalKind, signal};

/// The exit code that shells use for a process ended by SIGINT.
const EXIT_CODE_INTERRUPTED: i32 = 130;

/// Whether the program was asked to stop.
#[derive(Clone)]
pub struct Interrupt(CancelToken);

impl Interrupt {
    /// Installs the signal handlers. Call it once per process.
    pub fn listen() -> anyhow::Result<Self> {
        let interrupt = Self(CancelToken::default());
        let asked = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("cannot listen for signals")?;
        // The handlers are made here, not on the thread, so that no signal is missed from now on.
        let (mut interrupted, mut terminated) = {
            let _entered = runtime.enter();
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                runtime.block_on(async move {
                    loop {
                        tokio::select! {
                            _ = interrupted.recv() => {}
                            _ = terminated.recv() => {}
                        }
                        if asked.0.cancel() {
                            std::process::exit(EXIT_CODE_INTERRUPTED);
                        }
                    }
                });
            })
            .context("cannot start the thread that listens for signals")?;
        Ok(interrupt)
    }

    /// Whether the program was asked to stop.
    pub fn is_asked(&self) -> bool {
        self.0.is_cancelled()
    }

    /// The token that the first signal cancels.
    pub fn token(&self) -> &CancelToken {
        &self.0
    }
}
