//! `FONDACO.UPDATE`: changes fields of a value by the schema of its store.

use std::sync::Arc;

use bytes::Bytes;
use fondaco_catalog::StoreTypes;
use fondaco_model::StoreName;
use fondaco_resp::command::CommandId;
use fondaco_schema::{Content, Update, ValueError, ValueRules};

use super::Refusal;
use super::expiry::{ExpiryOptions, Lifetime, Word};
use super::operation::{Answer, Asked, Change, Circumstances, Operation, Parser, Request};
use crate::single_value::Current;

/// An update of the fields of one value.
#[derive(Debug, Clone)]
pub(in crate::server) struct FieldUpdate {
    /// The text that the client sent.
    document: Bytes,
    update: Arc<Update>,
    /// Of the store: those without a type until the store is known.
    rules: Arc<ValueRules>,
    lifetime: Lifetime,
    /// Whether the new value is the answer.
    returns: bool,
}

impl PartialEq for FieldUpdate {
    fn eq(&self, other: &Self) -> bool {
        (&self.document, self.lifetime, self.returns) == (&other.document, other.lifetime, other.returns)
    }
}

impl Eq for FieldUpdate {}

/// How the command is read.
#[inline]
pub(super) fn parser(command: CommandId) -> Option<Parser> {
    (command == CommandId::FondacoUpdate).then_some(update)
}

fn update(request: &Request<'_>) -> Result<Asked, Refusal> {
    let document = request.part(2);
    let update = Update::parse(&document).map_err(|error| format!("ERR {error}"))?;
    let (mut expiry, mut returns, mut at) = (ExpiryOptions::default(), false, 3);
    while at < request.len() {
        at = match request.is(at, "RETURN") {
            true => {
                returns = true;
                at + 1
            }
            false => expiry.take(request, at, Word::Persist)?,
        };
    }
    let update = FieldUpdate {
        document,
        update: Arc::new(update),
        rules: Arc::default(),
        lifetime: expiry.lifetime(request).unwrap_or(Ok(Lifetime::Kept))?,
        returns,
    };
    Ok(Asked::one(request, Operation::Update(update)))
}

impl FieldUpdate {
    /// The same, by the rules of a store.
    pub(super) fn by(self, store: &StoreTypes) -> Self {
        let rules = Arc::new(store.rules());
        Self { rules, ..self }
    }

    /// The text that the client sent.
    pub(super) fn document(&self) -> Bytes {
        self.document.clone()
    }

    pub(super) fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// Whether the new value is the answer.
    pub(super) fn returns(&self) -> bool {
        self.returns
    }

    /// Checks that it can be an event of a store, as far as that can be told without the value.
    ///
    /// # Errors
    /// The error to answer with.
    pub(super) fn check_event(&self, store: &StoreName) -> Result<(), Refusal> {
        self.rules.check_update(&self.update).map_err(|error| {
            format!("WRONGTYPE the update does not fit store {store:?}, and nothing was written: {error}")
        })
    }

    /// The bytes of the request that come with it.
    pub(in crate::server) fn bytes(&self) -> usize {
        self.document.len()
    }

    /// The fields that it writes.
    pub(super) fn fields(&self) -> Box<[Box<str>]> {
        self.update.fields().map(Box::from).collect()
    }

    pub(super) fn apply(&self, current: Option<&Current>, here: &Circumstances) -> (Change, Answer) {
        let mut content = Content::of(current.map(|current| current.value.clone()), &self.rules);
        let refused = |error: &ValueError| {
            let value_type = self.rules.value_type();
            let error = format!(
                "WRONGTYPE the update does not fit, and nothing was written: {error} (values of type {value_type})"
            );
            (Change::None, Answer::Error(error))
        };
        if let Err(error) = content.apply(&self.update) {
            return refused(&error);
        }
        let value = content.value();
        let shown = || match &value {
            None => Ok(Answer::Null),
            Some(value) => self
                .rules
                .shown(value)
                .map(|json| Answer::Bulk(json.to_string().into())),
        };
        let answer = match self.returns.then(shown).transpose() {
            Ok(answer) => answer.unwrap_or(Answer::Ok),
            Err(error) => return refused(&error),
        };
        let change = match value {
            // The last member of a set was removed.
            None if current.is_some() => Change::Delete,
            // A removal from an absent key.
            None => Change::None,
            Some(value) if value.len() > here.value_bytes_max => {
                let error = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
                return (Change::None, Answer::Error(error.into()));
            }
            Some(value) => Change::Write(Current {
                value,
                expires_unix_ms: here.expiry_of(self.lifetime, current),
            }),
        };
        (change, answer)
    }
}
