//! Operations on a whole server: binding many names in one step, backup, and shutdown.

use std::collections::HashSet;
use std::sync::Arc;

use corelane::{Servant, SystemException};

use super::corelane_naming::control::{BackupError, BindAllError, Failed};
use super::corelane_naming::{BindOutcome, BindOutcomes, Control, NewBinding};
use super::cos_naming::{NameComponent, NamingContextRef};
use super::directory::DirectoryError;
use super::records;
use super::servants::ServiceState;
use super::state::{BindingTarget, BoundTarget, ContextId, NamingOperation, NamingRefusal, ResolvedName};

struct ControlServant {
    service: Arc<ServiceState>,
    root: NamingContextRef,
    shutdown: Box<dyn Fn() + Send + Sync>,
}

pub(super) fn servant(
    service: Arc<ServiceState>,
    root: NamingContextRef,
    shutdown: Box<dyn Fn() + Send + Sync>,
) -> Servant {
    Control::servant(ControlServant { service, root, shutdown })
}

fn failed(reason: impl Into<String>) -> BindAllError {
    BindAllError::Failed(Failed { reason: reason.into() })
}

impl Control for ControlServant {
    fn bind_all(
        &self,
        parent: &[NameComponent],
        bindings: &[NewBinding],
        replaces: bool,
    ) -> Result<BindOutcomes, BindAllError> {
        bind_all(&self.service, parent, bindings, replaces)
    }

    fn initial_context(&self) -> Result<Option<NamingContextRef>, SystemException> {
        Ok(Some(self.root.clone()))
    }

    fn backup(&self, path: &str) -> Result<(), BackupError> {
        match self.service.directory.backup(path.as_ref()) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(failed(error.to_string())),
            None => Err(failed("the server keeps its names in memory: start it with --store FILE")),
        }
    }

    fn shutdown(&self) -> Result<(), SystemException> {
        (self.shutdown)();
        Ok(())
    }
}

pub(super) fn bind_all(
    service: &ServiceState,
    parent: &[NameComponent],
    bindings: &[NewBinding],
    replaces: bool,
) -> Result<BindOutcomes, BindAllError> {
    if service.settings.is_read_only {
        return Err(failed("the naming service is read-only"));
    }
    let context = context(service, parent)?;
    let mut named = HashSet::new();
    // An operation is `None` if its name was already bound to the same object.
    let mut operations = Vec::with_capacity(bindings.len());
    for binding in bindings {
        let operation = operation(context, binding, replaces)?;
        // Only the first binding of a name is compared with the state, because this binding may
        // change the name's object.
        let is_first = named.insert((&binding.name.id, &binding.name.kind));
        operations.push(Some(operation).filter(|operation| !(is_first && is_already_bound(service, operation))));
    }
    let is_changed: Vec<bool> = operations.iter().map(Option::is_some).collect();
    let mut results = service.directory.submit_all(operations.into_iter().flatten().collect()).into_iter();
    let outcomes = is_changed.into_iter().map(|is_changed| match if is_changed { results.next() } else { None } {
        None => Ok(BindOutcome::BoundBefore),
        Some(Ok(_)) => Ok(BindOutcome::BoundNow),
        Some(Err(DirectoryError::Refused(NamingRefusal::AlreadyBound))) => Ok(BindOutcome::BoundBefore),
        Some(Err(DirectoryError::Refused(NamingRefusal::NotFound { .. }))) => Ok(BindOutcome::BoundToContext),
        Some(Err(DirectoryError::Refused(_))) => Err(failed("the context has been destroyed")),
        Some(Err(DirectoryError::Store(error))) => Err(failed(error.to_string())),
    });
    outcomes.collect()
}

fn is_already_bound(service: &ServiceState, operation: &NamingOperation) -> bool {
    let NamingOperation::Rebind { context, name, target } = operation else { return false };
    matches!(service.directory.state().resolve(*context, name), Ok(ResolvedName::Bound(bound)) if bound == target.into())
}

fn context(service: &ServiceState, name: &[NameComponent]) -> Result<ContextId, BindAllError> {
    if name.is_empty() {
        return Ok(ContextId::ROOT);
    }
    match service.directory.state().resolve(ContextId::ROOT, name) {
        Ok(ResolvedName::Bound(BoundTarget::Context(context))) => Ok(context),
        _ => Err(failed("the name of the parent is bound to no context of this server")),
    }
}

fn operation(context: ContextId, binding: &NewBinding, replaces: bool) -> Result<NamingOperation, BindAllError> {
    let nil = corelane::Ior::default();
    let ior = binding.target.as_ref().map_or(&nil, corelane::ObjectRef::ior);
    let reference = records::encode_reference(ior).map_err(SystemException::from)?;
    let (name, target) = (vec![binding.name.clone()], BindingTarget::Object(reference));
    Ok(if replaces {
        NamingOperation::Rebind { context, name, target }
    } else {
        NamingOperation::Bind { context, name, target }
    })
}
