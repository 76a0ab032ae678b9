//! The command `prune`, which unbinds names whose objects do not exist or cannot be reached.

use std::time::Duration;

use corelane::{CallPhase, ObjectRef, SystemException, SystemExceptionKind as Kind};
use corelane_services::naming::cos_naming::{Binding, BindingType, NameComponent, NamingContextRef};
use serde_json::json;

use super::client::rebind_message;
use super::output::Output;
use super::walk::{ListError, ObjectMap, ServerAddresses, bound_context, for_each_batch, joined_name};

#[derive(Clone, Copy, Debug)]
pub(super) struct Prune {
    pub(super) timeout: Duration,
    pub(super) dry_run: bool,
    pub(super) follow: bool,
}

/// Unbinds and prints the names of dead objects below a context. With `dry_run`, only prints them.
/// `prefix` is the name of the context.
pub(super) fn prune(
    context: &NamingContextRef,
    prefix: &str,
    prune: Prune,
    out: &mut Output<'_>,
) -> Result<(), String> {
    let mut walk = PruneWalk {
        prune,
        path: vec![context.as_object().clone()],
        checked: ObjectMap::default(),
        server: ServerAddresses::new(context.as_object()),
        not_done: 0,
    };
    walk.run(context, prefix, out).map_err(String::from)?;
    if walk.not_done == 0 { Ok(()) } else { Err(format!("{} names were not unbound or not checked", walk.not_done)) }
}

struct PruneWalk {
    prune: Prune,
    path: Vec<ObjectRef>,
    /// The reason why a checked context is dead, or `None` if it is not dead.
    checked: ObjectMap<Option<String>>,
    server: ServerAddresses,
    /// Number of dead names that remain bound and of contexts that were not checked completely.
    not_done: usize,
}

struct Dead {
    name: Vec<NameComponent>,
    whole: String,
    object: ObjectRef,
    reason: String,
}

impl PruneWalk {
    fn run(&mut self, context: &NamingContextRef, prefix: &str, out: &mut Output<'_>) -> Result<(), ListError> {
        let mut dead = Vec::new();
        let listed = for_each_batch(context, &mut |bindings| {
            for binding in bindings {
                dead.extend(self.check(context, prefix, binding, out)?);
            }
            Ok(())
        });
        if let Err(ListError::Output(reason)) = listed {
            return Err(ListError::Output(reason));
        }
        for Dead { name, whole, object, reason } in dead {
            let outcome = if self.prune.dry_run { Ok(true) } else { unbind_from(context, &name, &object) };
            let stays = match outcome {
                Ok(true) => None,
                Ok(false) => Some("it has been bound again".to_owned()),
                Err(error) => {
                    self.not_done += 1;
                    Some(error)
                }
            };
            let is_unbound = stays.is_none() && !self.prune.dry_run;
            out.line(
                || match &stays {
                    None => format!("{whole}: {reason}"),
                    Some(stays) => format!("{whole}: {reason}; it stays bound: {stays}"),
                },
                || json!({ "name": whole, "found": reason, "is_unbound": is_unbound, "error": stays }),
            )
            .map_err(ListError::Output)?;
        }
        listed
    }

    fn check(
        &mut self,
        context: &NamingContextRef,
        prefix: &str,
        binding: Binding,
        out: &mut Output<'_>,
    ) -> Result<Option<Dead>, String> {
        let name = binding.binding_name;
        let whole = joined_name(prefix, &name);
        let (object, reason) = if binding.binding_type == BindingType::Nobject {
            let Some(object) = context.resolve(&name).ok().flatten() else { return Ok(None) };
            let reason = death(&object.with_timeout(self.prune.timeout));
            (object, reason)
        } else {
            let Ok(object) = bound_context(context, &name, &self.path) else { return Ok(None) };
            let reason = match self.checked.get(&object) {
                Some(reason) => reason.clone(),
                None => self.check_context(&object, &whole, out)?,
            };
            (object, reason)
        };
        Ok(reason.map(|reason| Dead { name, whole, object, reason }))
    }

    fn leave(&mut self, name: &str, reason: &str, out: &mut Output<'_>) -> Result<(), String> {
        self.not_done += 1;
        let members = || json!({ "name": name, "found": null, "is_unbound": false, "error": reason });
        out.line(|| format!("{name}: {reason}"), members)
    }

    fn check_context(
        &mut self,
        object: &ObjectRef,
        name: &str,
        out: &mut Output<'_>,
    ) -> Result<Option<String>, String> {
        let object = object.with_timeout(self.prune.timeout);
        let reason = if self.prune.follow || self.server.contains(&object) {
            self.path.push(object.clone());
            let outcome = self.run(&NamingContextRef::unchecked_narrow(&object), name, out);
            self.path.pop();
            match outcome {
                Ok(()) => None,
                Err(ListError::Output(reason)) => return Err(reason),
                Err(ListError::Context(exception)) => {
                    let reason = death_of(&exception);
                    if reason.is_none() {
                        self.leave(name, &format!("not checked: {exception}"), out)?;
                    }
                    reason
                }
                Err(ListError::Iterator(exception)) => {
                    self.leave(name, &format!("not checked to its end: {exception}"), out)?;
                    None
                }
            }
        } else {
            death(&object)
        };
        self.checked.insert(object, reason.clone());
        Ok(reason)
    }
}

/// Unbinds the name if it is still bound to `object`. Returns false if it is not.
fn unbind_from(context: &NamingContextRef, name: &[NameComponent], object: &ObjectRef) -> Result<bool, String> {
    let found = context.resolve(name).map_err(rebind_message)?;
    if found.is_none_or(|found| found.ior() != object.ior()) {
        return Ok(false);
    }
    context.unbind(name).map(|()| true).map_err(rebind_message)
}

fn death(object: &ObjectRef) -> Option<String> {
    match object.non_existent() {
        Ok(true) => Some("does not exist".to_owned()),
        Ok(false) => None,
        Err(exception) => death_of(&exception),
    }
}

/// Returns the reason why the object counts as dead, or `None`. An object counts as dead if it does
/// not exist, or if no connection to its server can be made.
fn death_of(exception: &SystemException) -> Option<String> {
    let has_failed_to_connect = exception.detail().is_some_and(|detail| detail.phase == Some(CallPhase::Connect));
    match exception.kind() {
        Kind::ObjectNotExist => Some("does not exist".to_owned()),
        Kind::Transient | Kind::CommFailure if has_failed_to_connect => {
            Some(format!("cannot be reached ({exception})"))
        }
        _ => None,
    }
}
