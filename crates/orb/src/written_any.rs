//! Information about a written `any` that its bytes do not contain.

use std::cell::RefCell;
use std::sync::Arc;

use corelane_wire::typecode::TypeCode;

use crate::client::context::ClientContext;

thread_local! {
    static WRITTEN_CONTEXT: RefCell<Option<WrittenContext>> = const { RefCell::new(None) };
}

#[derive(Default)]
pub(crate) struct WrittenContext {
    pub(crate) client: Option<Arc<ClientContext>>,
    pub(crate) types: Vec<(Box<str>, TypeCode)>,
}

/// Runs `write`, and returns its result with the ORB and the types that `write` recorded. If an
/// outer `any` is being written, records the ORB and the types for the outer `any` as well.
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

/// Records the ORB for calls through references that are extracted from the `any`.
pub(crate) fn record_orb(client: &Arc<ClientContext>) {
    WRITTEN_CONTEXT.with_borrow_mut(|noted| {
        if let Some(noted) = noted {
            noted.client = Some(Arc::clone(client));
        }
    });
}

pub(crate) fn record_type((id, type_code): &(Box<str>, TypeCode)) {
    record_value_type(id, || type_code.clone());
}

/// Records the type of a value, which may be derived from the type in the TypeCode of the `any`.
pub(crate) fn record_value_type(id: &str, type_code: impl FnOnce() -> TypeCode) {
    WRITTEN_CONTEXT.with_borrow_mut(|noted| {
        if let Some(noted) = noted
            && !noted.types.iter().any(|(known, _)| **known == *id)
        {
            noted.types.push((id.into(), type_code()));
        }
    });
}
