//! The command `watch`, which prints changes of the names below a context.
//!
//! Corelane's name servers report their changes. From other servers the command repeatedly reads
//! all names and compares them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::time::Duration;

use corelane::{ObjectRef, SystemExceptionKind as Kind};
use corelane_services::naming::corelane_naming::{Change, ChangeKind, WatchedContextRef};
use corelane_services::naming::cos_naming::{BindingType, NamingContextRef};
use serde_json::json;

use super::output::Output;
use super::walk::{ListError, ObjectMap, ServerAddresses, bound_context, context_suffix, for_each_batch, joined_name};

const PATIENCE_MS: u32 = 1_000;
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    pub(super) interval: Duration,
    /// Number of changes after which the command ends. `None`: it does not end by itself.
    pub(super) count: Option<u64>,
}

/// Prints the changes below a context. `prefix` is the name of the context.
pub(super) fn watch(
    context: &NamingContextRef,
    prefix: &str,
    watch: Watch,
    out: &mut Output<'_>,
    said: &mut dyn Write,
) -> Result<(), String> {
    let mut printer = Printer { out, left: watch.count };
    let reporting = WatchedContextRef::narrow(context.as_object()).map_err(|error| error.to_string())?;
    match reporting {
        Some(reporting) => follow(&reporting, prefix, &mut printer, said),
        None => compare(context, prefix, watch.interval, &mut printer, said),
    }
}

struct Printer<'p, 'o> {
    out: &'p mut Output<'o>,
    left: Option<u64>,
}

impl Printer<'_, '_> {
    fn print(&mut self, kind: ChangeKind, name: &str, is_context: bool) -> Result<(), String> {
        if self.is_done() {
            return Ok(());
        }
        self.left = self.left.map(|left| left - 1);
        let word = match kind {
            ChangeKind::Bound => "bound",
            ChangeKind::Unbound => "unbound",
        };
        self.out.line(
            || format!("{word} {name}{}", context_suffix(is_context)),
            || json!({ "change": word, "name": name, "is_context": is_context }),
        )?;
        self.out.flush()
    }

    fn is_done(&self) -> bool {
        self.left == Some(0)
    }
}

/// A binding: true for a context, and a hash of the reference.
type WatchedBinding = (bool, u64);

fn entry(is_context: bool, object: Option<&ObjectRef>) -> WatchedBinding {
    let mut hasher = DefaultHasher::new();
    object.map(ObjectRef::ior).hash(&mut hasher);
    (is_context, hasher.finish())
}

#[derive(Default)]
struct WatchedContexts {
    by_object: ObjectMap<String>,
    names: BTreeSet<String>,
}

impl WatchedContexts {
    fn name(&self, context: &ObjectRef) -> Option<&str> {
        self.by_object.get(context).map(String::as_str)
    }

    fn insert(&mut self, context: ObjectRef, name: &str) {
        self.by_object.insert(context, name.to_owned());
        self.names.insert(name.to_owned());
    }

    fn extend(&mut self, other: WatchedContexts) {
        self.by_object.extend(other.by_object);
        self.names.extend(other.names);
    }

    fn remove_below(&mut self, name: &str) -> bool {
        let below = format!("{name}/");
        let is_gone = |known: &str| known == name || known.starts_with(&below);
        let first_below = self.names.range(below.clone()..).next();
        if !self.names.contains(name) && !first_below.is_some_and(|known| is_gone(known)) {
            return false;
        }
        self.names.retain(|known| !is_gone(known));
        self.by_object.retain(|known| !is_gone(known))
    }
}

/// Reads the bindings below a context. Each context is read once, under the first name that leads
/// to it. Contexts of other servers are not read.
struct Reader<'r> {
    server: &'r mut ServerAddresses,
    contexts: WatchedContexts,
    visit: &'r mut dyn FnMut(String, WatchedBinding),
    resolves: bool,
}

impl Reader<'_> {
    fn read(&mut self, context: &NamingContextRef, prefix: &str, path: &mut Vec<ObjectRef>) -> Result<(), ListError> {
        self.contexts.insert(context.as_object().clone(), prefix);
        let mut below = Vec::new();
        for_each_batch(context, &mut |bindings| {
            for binding in bindings {
                let name = joined_name(prefix, &binding.binding_name);
                if binding.binding_type == BindingType::Nobject {
                    let object =
                        if self.resolves { context.resolve(&binding.binding_name).ok().flatten() } else { None };
                    (self.visit)(name, entry(false, object.as_ref()));
                    continue;
                }
                let found = bound_context(context, &binding.binding_name, path).ok();
                (self.visit)(name.clone(), entry(true, found.as_ref()));
                below.extend(found.map(|object| (object, name)));
            }
            Ok(())
        })?;
        for (object, name) in below {
            if self.contexts.name(&object).is_none() && self.server.contains(&object) {
                path.push(object.clone());
                let read = self.read(&NamingContextRef::unchecked_narrow(&object), &name, path);
                path.pop();
                match read {
                    // A name can be bound to a destroyed context, which has no names to read.
                    Err(ListError::Context(exception)) if exception.kind() == Kind::ObjectNotExist => {}
                    read => read?,
                }
            }
        }
        Ok(())
    }
}

fn read(
    context: &NamingContextRef,
    prefix: &str,
    server: &mut ServerAddresses,
    resolves: bool,
    visit: &mut dyn FnMut(String, WatchedBinding),
) -> Result<WatchedContexts, String> {
    let mut reader = Reader { server, contexts: WatchedContexts::default(), visit, resolves };
    reader.read(context, prefix, &mut vec![context.as_object().clone()])?;
    Ok(reader.contexts)
}

fn compare(
    context: &NamingContextRef,
    prefix: &str,
    interval: Duration,
    printer: &mut Printer<'_, '_>,
    said: &mut dyn Write,
) -> Result<(), String> {
    let mut server = ServerAddresses::new(context.as_object());
    let mut names = || {
        let mut names = BTreeMap::new();
        read(context, prefix, &mut server, true, &mut |name, entry| {
            names.insert(name, entry);
        })?;
        Ok::<_, String>(names)
    };
    let mut before = names()?;
    let _ = writeln!(said, "comparing all names every {} s: the server reports no changes", interval.as_secs_f64());
    while !printer.is_done() {
        std::thread::sleep(interval);
        let after = names()?;
        for (name, (is_context, _)) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
            printer.print(ChangeKind::Unbound, name, *is_context)?;
        }
        for (name, entry) in after.iter().filter(|(name, entry)| before.get(*name) != Some(entry)) {
            printer.print(ChangeKind::Bound, name, entry.0)?;
        }
        before = after;
    }
    Ok(())
}

fn follow(
    reporting: &WatchedContextRef,
    prefix: &str,
    printer: &mut Printer<'_, '_>,
    said: &mut dyn Write,
) -> Result<(), String> {
    let mut position = reporting.last_change().map_err(|error| error.to_string())?;
    let own = reporting.own_reference().map_err(|error| error.to_string())?;
    let context = &own.ok_or("the server returns a nil context")?;
    let mut server = ServerAddresses::new(context.as_object());
    let mut contexts = read_contexts(context, prefix, &mut server)?;
    let _ = writeln!(said, "watching: the server reports its changes");
    while !printer.is_done() {
        let asked = std::time::Instant::now();
        let (is_whole, changes, end) =
            reporting.changes_after(&position, PATIENCE_MS).map_err(|error| error.to_string())?;
        if !is_whole {
            let _ = writeln!(said, "some changes were not seen");
            contexts = read_contexts(context, prefix, &mut server)?;
        } else if changes.is_empty() && asked.elapsed() < PAUSE {
            // A server with its maximum number of waiting clients answers at once. The pause bounds
            // the number of questions.
            std::thread::sleep(PAUSE);
        }
        for change in changes {
            if print(&change, &mut contexts, &mut server, printer)? {
                // A removed context may have another name. Its names are then read again below that
                // name.
                contexts.extend(read_contexts(context, prefix, &mut server)?);
            }
        }
        position = end;
    }
    Ok(())
}

fn read_contexts(
    context: &NamingContextRef,
    prefix: &str,
    server: &mut ServerAddresses,
) -> Result<WatchedContexts, String> {
    read(context, prefix, server, false, &mut |_, _| {})
}

fn print(
    change: &Change,
    contexts: &mut WatchedContexts,
    server: &mut ServerAddresses,
    printer: &mut Printer<'_, '_>,
) -> Result<bool, String> {
    let Some(parent) = &change.parent else { return Ok(false) };
    let Some(prefix) = contexts.name(parent.as_object()) else { return Ok(false) };
    let name = joined_name(prefix, std::slice::from_ref(&change.name));
    let is_context = change.binding_type == BindingType::Ncontext;
    printer.print(change.kind, &name, is_context)?;
    let bound = change.target.as_ref().filter(|_| is_context && change.kind == ChangeKind::Bound);
    if bound.is_some_and(|object| contexts.name(object) == Some(&name)) {
        return Ok(false);
    }
    // The name may have been bound to another context. The contexts below the name are then
    // forgotten.
    let has_removed = contexts.remove_below(&name);
    if let Some(object) = bound
        && contexts.name(object).is_none()
        && server.contains(object)
    {
        let found = NamingContextRef::unchecked_narrow(object);
        match read_contexts(&found, &name, server) {
            Ok(more) => contexts.extend(more),
            // The context may have been destroyed, for example. It is recorded without contexts
            // below it.
            Err(_) => contexts.insert(object.clone(), &name),
        }
    }
    Ok(has_removed)
}

#[cfg(test)]
mod tests {
    use corelane::Orb;
    use corelane_services::naming::cos_naming::NameComponent;

    use super::*;

    #[test]
    fn change_in_the_last_reading_removes_no_context() {
        let orb = Orb::new().unwrap();
        let object = |key: &str| orb.string_to_object(&format!("corbaloc::1.2@127.0.0.1:1/{key}")).unwrap().unwrap();
        let root = object("root");
        let mut contexts = WatchedContexts::default();
        let mut server = ServerAddresses::new(&root);
        for (key, name) in [("root", ""), ("a", "a"), ("b", "a/b"), ("ab", "ab")] {
            contexts.insert(object(key), name);
        }
        let mut change = |contexts: &mut WatchedContexts, kind, name: &str, target: Option<ObjectRef>, is_context| {
            let change = Change {
                parent: Some(NamingContextRef::unchecked_narrow(&root)),
                name: NameComponent { id: name.to_owned(), kind: String::new() },
                binding_type: if is_context { BindingType::Ncontext } else { BindingType::Nobject },
                kind,
                target,
            };
            let mut printed = Vec::new();
            let mut out = Output::new(&mut printed, false);
            print(&change, contexts, &mut server, &mut Printer { out: &mut out, left: None }).unwrap()
        };
        assert!(!change(&mut contexts, ChangeKind::Bound, "a", Some(object("a")), true));
        assert_eq!(contexts.name(&object("b")), Some("a/b"));
        assert!(!change(&mut contexts, ChangeKind::Bound, "other", None, false));
        assert!(change(&mut contexts, ChangeKind::Unbound, "a", None, true));
        assert_eq!([object("a"), object("b")].map(|object| contexts.name(&object).is_some()), [false, false]);
        assert_eq!(contexts.name(&object("ab")), Some("ab"));
    }
}
