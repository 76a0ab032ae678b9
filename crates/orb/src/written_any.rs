//! Information that is recorded while a value is written into an `any`, because the bytes of the
//! `any` do not contain it.

use std::cell::RefCell;
use std::sync::Arc;

use corelane_wire::typecode::TypeCode;

use crate::client::context::ClientContext;

thread_local! {
    /// The information recorded so far; `None` while the thread writes no value into an `any`.
    static WRITTEN_CONTEXT: RefCell<Option<WrittenContext>> = const { RefCell::new(None) };
}

/// Information about an `any` that the bytes of the `any` do not contain.
#[derive(Default)]
pub(crate) struct WrittenContext {
    /// The ORB of the last reference that was written.
    pub(crate) client: Option<Arc<ClientContext>>,
    /// The types of the values (IDL `valuetype`) that were written.
    pub(crate) types: Vec<(Box<str>, TypeCode)>,
}

/// Runs `write`, which writes a value into an `any`, and returns the information that was recorded.
/// If the `any` is itself written into another `any`, the outer `any` gets the same ORB and types.
pub(crate) fn record<T>(write: impl FnOnce() -> T) -> (T, WrittenContext) {
    let outer = WRITTEN_CONTEXT.replace(Some(WrittenContext::default()));
    let written = write();
    let recorded = WRITTEN_CONTEXT.replace(outer).unwrap_or_default();
    if let Some(client) = &recorded.client {
        record_orb(client);
    }
    recorded.types.iter().for_each(record_type);
    (written, recorded)
}

/// Records the ORB of a reference that is written. An `any` contains only the bytes of the
/// reference, but calls through the extracted reference need an ORB.
pub(crate) fn record_orb(client: &Arc<ClientContext>) {
    WRITTEN_CONTEXT.with_borrow_mut(|noted| {
        if let Some(noted) = noted {
            noted.client = Some(Arc::clone(client));
        }
    });
}

/// Records the type of a value (IDL `valuetype`) under its repository id.
pub(crate) fn record_type((id, type_code): &(Box<str>, TypeCode)) {
    record_value_type(id, || type_code.clone());
}

/// Records the type of a value that is written. This type may be derived from the type in the
/// TypeCode of the `any`.
pub(crate) fn record_value_type(id: &str, type_code: impl FnOnce() -> TypeCode) {
    WRITTEN_CONTEXT.with_borrow_mut(|noted| {
        if let Some(noted) = noted
            && !noted.types.iter().any(|(known, _)| **known == *id)
        {
            noted.types.push((id.into(), type_code()));
        }
    });
}
