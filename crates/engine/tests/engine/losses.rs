//! A record of losses in memory, for engines that find some when they are opened.

use std::io;
use std::sync::{Arc, Mutex};

use fondaco_engine::{LossNotes, OnLoss};

/// The losses that an engine has noted.
#[derive(Debug, Default)]
pub struct Noted(Mutex<Vec<String>>);

impl Noted {
    /// The reaction of an engine that notes its losses here.
    pub fn reaction(self: &Arc<Self>) -> OnLoss {
        OnLoss::Note(Arc::clone(self) as Arc<dyn LossNotes>)
    }

    /// All losses; `None` if there are none.
    pub fn text(&self) -> Option<String> {
        let texts = self.0.lock().unwrap();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

impl LossNotes for Noted {
    fn note(&self, lost: &str) -> io::Result<()> {
        self.0.lock().unwrap().push(lost.to_owned());
        Ok(())
    }
}

/// A record that cannot be written.
#[derive(Debug)]
pub struct Unwritable;

impl LossNotes for Unwritable {
    fn note(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }
}
