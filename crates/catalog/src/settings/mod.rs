//! Settings that may be changed while the node runs: by `CONFIG SET` and through the control port.
//!
//! They are few, nearly all are numbers, and each has limits: a value outside them is refused with an error that names
//! the limits. Settings that cannot change while running (addresses, directories, keys) are not here.

mod list;
mod value;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use arc_swap::ArcSwap;

pub use self::list::{SETTINGS, Setting, SettingSpec};
pub use self::value::{SettingKind, SettingValue, WHOLE_SHARE};

/// The live settings of a node.
#[derive(Debug)]
pub struct Settings {
    /// The template whose values count before those of the cluster.
    template: Option<Box<str>>,
    values: [AtomicU64; SETTINGS.len()],
    /// The value of the one that is a text.
    traces_endpoint: ArcSwap<String>,
    /// The number that requests look at: 0 without a collector, and otherwise one more than the billionths that are sampled.
    traces: AtomicU64,
}

/// Why a setting was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// There is no such setting.
    #[error("unknown setting {name:?}: CONFIG GET * lists them")]
    Unknown {
        /// The name.
        name: String,
    },
    /// The value is no number, or outside the limits.
    #[error("invalid value {value:?} for {name}: use a whole number from {min} to {max}")]
    Invalid {
        /// The setting.
        name: &'static str,
        /// The value.
        value: String,
        /// The least possible value.
        min: u64,
        /// The greatest possible value.
        max: u64,
    },
    /// The value is no share.
    #[error("invalid value {value:?} for {name}: use a share from 0 to 1, such as 0.001")]
    Share {
        /// The setting.
        name: &'static str,
        /// The value.
        value: String,
    },
    /// The value is no URL of a collector.
    #[error(
        "invalid value {value:?} for {name}: use the URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318, \
         without a user, a password and a query; or nothing"
    )]
    Collector {
        /// The setting.
        name: &'static str,
        /// The value.
        value: String,
    },
}

impl Default for Settings {
    fn default() -> Self {
        Self::of_template(None)
    }
}

impl Settings {
    /// The defaults, of a process with or without a template.
    pub fn of_template(template: Option<&str>) -> Self {
        Self {
            template: template.map(Into::into),
            values: std::array::from_fn(|at| AtomicU64::new(SETTINGS[at].default)),
            traces_endpoint: ArcSwap::default(),
            traces: AtomicU64::new(0),
        }
    }

    /// The template whose values count before those of the cluster.
    pub fn template(&self) -> Option<&str> {
        self.template.as_deref()
    }

    /// The value of a setting.
    #[inline]
    pub fn get(&self, setting: Setting) -> u64 {
        self.values[setting as usize].load(Relaxed)
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// A value outside the setting's limits.
    pub fn set(&self, setting: Setting, value: u64) -> Result<(), SettingError> {
        let spec = &SETTINGS[setting as usize];
        if !(spec.min..=spec.max).contains(&value) {
            return Err(spec.invalid(&value.to_string()));
        }
        self.values[setting as usize].store(value, Relaxed);
        self.note_traces();
        Ok(())
    }

    /// Changes a setting to a value that was [parsed](Self::parse).
    ///
    /// # Errors
    /// A value outside the setting's limits.
    pub fn apply(&self, setting: Setting, value: &SettingValue) -> Result<(), SettingError> {
        match value {
            SettingValue::Number(number) => self.set(setting, *number),
            SettingValue::Text(text) => {
                self.traces_endpoint.store(Arc::new(text.clone()));
                self.note_traces();
                Ok(())
            }
        }
    }

    /// Gives a setting its default.
    pub fn reset(&self, setting: Setting) {
        match setting {
            Setting::TracesEndpoint => self.traces_endpoint.store(Arc::default()),
            _ => self.values[setting as usize].store(SETTINGS[setting as usize].default, Relaxed),
        }
        self.note_traces();
    }

    /// The value of a setting, as it is written.
    pub fn written(&self, setting: Setting) -> String {
        match setting {
            Setting::TracesEndpoint => self.traces_endpoint().to_string(),
            _ => SETTINGS[setting as usize].written(self.get(setting)),
        }
    }

    /// Where traces are sent; nowhere if it is empty.
    pub fn traces_endpoint(&self) -> Arc<String> {
        self.traces_endpoint.load_full()
    }

    /// The share of requests that are sampled, in billionths; `None` if there is no collector.
    #[inline]
    pub fn traces_share(&self) -> Option<u64> {
        self.traces.load(Relaxed).checked_sub(1)
    }

    fn note_traces(&self) {
        let traces = match self.traces_endpoint.load().is_empty() {
            true => 0,
            false => self.get(Setting::TracesSample) + 1,
        };
        self.traces.store(traces, Relaxed);
    }

    /// Finds the setting for a name, its own or that of Redis, ignoring case, and checks a value for it, without
    /// changing anything.
    ///
    /// # Errors
    /// An unknown name, or a value that is not a number or outside the setting's limits.
    pub fn parse(name: &str, value: &str) -> Result<(Setting, SettingValue), SettingError> {
        let spec = Self::spec(name)?;
        Ok((spec.setting, spec.read(value)?))
    }

    /// The setting for a name, its own or that of Redis, ignoring case.
    ///
    /// # Errors
    /// An unknown name.
    pub fn spec(name: &str) -> Result<&'static SettingSpec, SettingError> {
        let mut specs = SETTINGS.iter();
        let found = specs.find(|spec| spec.names().any(|own| own.eq_ignore_ascii_case(name)));
        found.ok_or_else(|| SettingError::Unknown { name: name.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_limits_are_refused_with_the_limits() {
        let (setting, value) = Settings::parse("MaxClients", "5").unwrap();
        assert_eq!((setting, value), (Setting::ClientsMax, SettingValue::Number(5)));
        for value in ["0", "-1", "many", "1000001", ""] {
            let error = Settings::parse("maxclients", value).unwrap_err().to_string();
            assert!(error.contains("from 1 to 1000000"), "{error}");
        }
        assert!(Settings::parse("save", "").is_err());
    }
}
