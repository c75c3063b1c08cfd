//! Ctrl-C and SIGTERM: asked for once, a command stops cleanly; asked for twice, at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};

/// What a shell reports for a process ended by SIGINT.
const EXIT_CODE_INTERRUPTED: i32 = 130;

/// Whether the program was asked to stop.
#[derive(Clone)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Listens from now on. Once in a program.
    pub fn listen() -> anyhow::Result<Self> {
        let interrupt = Self(Arc::new(AtomicBool::new(false)));
        let asked = interrupt.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("cannot listen for signals")?;
        // Made here and not on the thread, so that no signal from now on is missed.
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
                        if asked.0.swap(true, Relaxed) {
                            std::process::exit(EXIT_CODE_INTERRUPTED);
                        }
                    }
                });
            })
            .context("cannot start the thread that listens for signals")?;
        Ok(interrupt)
    }

    /// Whether it was asked to stop.
    pub fn is_asked(&self) -> bool {
        self.0.load(Relaxed)
    }
}
