//! The command `import`, which copies all names below a context of any name server.
//!
//! The memory depends on the number of contexts, not on the number of names.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use corelane::{ObjectRef, Orb};
use corelane_services::naming::corelane_naming::{BindOutcome, ControlRef, NewBinding, WatchedContextRef};
use corelane_services::naming::cos_naming::naming_context::{BindError, BindNewContextError};
use corelane_services::naming::cos_naming::{Binding, BindingType, NameComponent, NamingContextRef};
use serde_json::json;

use super::client::{bind_message, bind_new_context_message, rebind_message};
use super::control;
use super::output::Output;
use super::walk::{ObjectMap, ServerAddresses, for_each_batch, joined_name, name_text};

const MAX_LISTED: usize = 20;
const PROGRESS: usize = 100_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Import<'a> {
    pub(super) jobs: usize,
    pub(super) replace: bool,
    /// Control socket of the destination. `None` means that the names are bound one by one.
    pub(super) control: Option<&'a Path>,
    pub(super) root: &'a NamingContextRef,
}

struct ContextCopy {
    from: NamingContextRef,
    to: NamingContextRef,
    name: Vec<NameComponent>,
}

enum ImportOutcome {
    Bound,
    Same,
    NotBound(String),
}

#[derive(Default)]
struct ImportCounts {
    objects: usize,
    contexts: usize,
    same: usize,
    not_bound: usize,
}

/// Copies the names below `from` to `to`. `name` is the name of `to` in the destination server.
pub(super) fn import(
    orb: &Orb,
    from: &NamingContextRef,
    to: &NamingContextRef,
    name: &[NameComponent],
    import: Import<'_>,
    out: &mut Output<'_>,
    said: &mut dyn Write,
) -> Result<(), String> {
    let control = import.control.map(|path| control::object(orb, path)).transpose()?;
    if let Some(control) = &control {
        control::check_root(control, &own_reference(import.root))?;
    }
    let to = &own_reference(to);
    let mut copied = ObjectMap::default();
    for from in [from, &own_reference(from)] {
        copied.insert(from.as_object().clone(), to.as_object().clone());
    }
    let mut made = ObjectMap::default();
    made.insert(to.as_object().clone(), ());
    let mut importer = Importer {
        import,
        control,
        server: ServerAddresses::new(from.as_object()),
        copied,
        made,
        work: vec![ContextCopy { from: from.clone(), to: to.clone(), name: name.to_vec() }],
        counts: ImportCounts::default(),
        out,
        said,
    };
    importer.run()
}

struct Importer<'a, 'o> {
    import: Import<'a>,
    control: Option<ControlRef>,
    server: ServerAddresses,
    copied: ObjectMap<ObjectRef>,
    /// The contexts that the import has created. They are not copied again if a server is copied
    /// into itself.
    made: ObjectMap<()>,
    work: Vec<ContextCopy>,
    counts: ImportCounts,
    out: &'a mut Output<'o>,
    said: &'a mut dyn Write,
}

impl Importer<'_, '_> {
    fn run(&mut self) -> Result<(), String> {
        let mut ended_early = None;
        while let Some(work) = self.work.pop() {
            let listed = for_each_batch(&work.from, &mut |bindings| self.copy(&work, bindings));
            if let Err(error) = listed {
                let reason = String::from(error);
                let name = name_text(&work.name);
                self.out.line(
                    || format!("{}: {reason}", if name.is_empty() { "the first context" } else { &name }),
                    || json!({ "name": name, "error": reason }),
                )?;
                ended_early = Some(reason);
            }
        }
        let ImportCounts { objects, contexts, same, not_bound } = self.counts;
        self.out.line(
            || format!("{objects} objects and {contexts} contexts are bound, {same} were already"),
            || json!({ "objects": objects, "contexts": contexts, "already": same, "not_bound": not_bound }),
        )?;
        match (not_bound, ended_early) {
            (0, None) => Ok(()),
            (0, Some(reason)) => Err(format!("not all names were read: {reason}")),
            (count, _) => Err(format!("{count} names were not bound")),
        }
    }

    fn copy(&mut self, work: &ContextCopy, bindings: Vec<Binding>) -> Result<(), String> {
        let before = self.counts.objects + self.counts.same;
        let (contexts, objects): (Vec<Binding>, Vec<Binding>) =
            bindings.into_iter().partition(|binding| binding.binding_type == BindingType::Ncontext);
        for binding in contexts {
            let name = binding.binding_name;
            if let Err(reason) = self.copy_context(work, &name) {
                self.refuse(&joined_name(&name_text(&work.name), &name), &reason)?;
            }
        }
        let names = objects.into_iter().map(|binding| binding.binding_name);
        let (names, odd): (Vec<Vec<NameComponent>>, Vec<_>) = names.partition(|name| name.len() == 1);
        for name in odd {
            self.refuse(&joined_name(&name_text(&work.name), &name), "the server lists it without one component")?;
        }
        let outcomes = match &self.control {
            Some(control) => bind_at_once(control, work, &names, self.import),
            None => bind_each(work, &names, self.import),
        };
        for (name, outcome) in names.iter().zip(outcomes) {
            match outcome {
                ImportOutcome::Bound => self.counts.objects += 1,
                ImportOutcome::Same => self.counts.same += 1,
                ImportOutcome::NotBound(reason) => self.refuse(&joined_name(&name_text(&work.name), name), &reason)?,
            }
        }
        let done = self.counts.objects + self.counts.same;
        if done / PROGRESS > before / PROGRESS {
            let _ = writeln!(self.said, "{done} objects");
        }
        Ok(())
    }

    fn refuse(&mut self, name: &str, reason: &str) -> Result<(), String> {
        self.counts.not_bound += 1;
        if self.counts.not_bound > MAX_LISTED {
            return Ok(());
        }
        self.out.line(|| format!("{name}: {reason}"), || json!({ "name": name, "error": reason }))
    }

    /// Copies the context of this name: creates a context at the destination if the name is not
    /// bound to one, and adds the names of the context to the work. A context that was copied
    /// before, or that belongs to another server, is bound and not copied.
    fn copy_context(&mut self, work: &ContextCopy, name: &[NameComponent]) -> Result<(), String> {
        let object = work.from.resolve(name).map_err(rebind_message)?.ok_or("nil")?;
        if self.made.get(&object).is_some() {
            return Err("it is a copy itself".to_owned());
        }
        let known = self.copied.get(&object).cloned();
        let bound = match known {
            Some(copy) => Some(copy),
            None if self.server.contains(&object) => None,
            None => Some(object.clone()),
        };
        if let Some(bound) = bound {
            let context = NamingContextRef::unchecked_narrow(&bound);
            return match work.to.bind_context(name, Some(&context)) {
                Ok(()) => {
                    self.counts.contexts += 1;
                    Ok(())
                }
                Err(BindError::AlreadyBound(_)) if is_bound_to(&work.to, name, Some(&bound)) => {
                    self.counts.same += 1;
                    Ok(())
                }
                Err(error) => Err(bind_message(error)),
            };
        }
        let to = match work.to.bind_new_context(name) {
            Ok(made) => {
                self.counts.contexts += 1;
                made.ok_or("the server made a nil context")?
            }
            // The name is already bound, for example by an earlier run. The bound context gets the
            // names.
            Err(BindNewContextError::AlreadyBound(_)) => {
                let found = work.to.resolve(name).map_err(rebind_message)?.ok_or("nil")?;
                let context = NamingContextRef::narrow(&found).map_err(|error| error.to_string())?;
                self.counts.same += 1;
                context.ok_or("the name is bound to an object")?
            }
            Err(error) => return Err(bind_new_context_message(error)),
        };
        self.copied.insert(object.clone(), to.as_object().clone());
        self.made.insert(to.as_object().clone(), ());
        let from = NamingContextRef::unchecked_narrow(&object);
        self.work.push(ContextCopy { from, to, name: [&work.name[..], name].concat() });
        Ok(())
    }
}

/// Returns the reference by which the server itself refers to the context. For servers other than
/// Corelane's, returns `context`.
fn own_reference(context: &NamingContextRef) -> NamingContextRef {
    let watched = WatchedContextRef::narrow(context.as_object()).ok().flatten();
    let own = watched.and_then(|watched| watched.own_reference().ok().flatten());
    own.unwrap_or_else(|| context.clone())
}

fn is_bound_to(context: &NamingContextRef, name: &[NameComponent], object: Option<&ObjectRef>) -> bool {
    context.resolve(name).is_ok_and(|found| found.as_ref().map(ObjectRef::ior) == object.map(ObjectRef::ior))
}

fn in_parallel<T: Send>(
    jobs: usize,
    names: &[Vec<NameComponent>],
    task: impl Fn(&[NameComponent]) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(name) = names.get(index) else { return done };
            done.push((index, task(name)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..jobs.min(names.len())).map(|_| scope.spawn(worker)).collect();
        let mut done = worker();
        done.extend(
            others.into_iter().flat_map(|other| other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))),
        );
        done
    });
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn bind_each(work: &ContextCopy, names: &[Vec<NameComponent>], import: Import<'_>) -> Vec<ImportOutcome> {
    in_parallel(import.jobs, names, |name| {
        let object = match work.from.resolve(name) {
            Ok(object) => object,
            Err(error) => return ImportOutcome::NotBound(rebind_message(error)),
        };
        match work.to.bind(name, object.as_ref()) {
            Ok(()) => ImportOutcome::Bound,
            Err(BindError::AlreadyBound(_)) if is_bound_to(&work.to, name, object.as_ref()) => ImportOutcome::Same,
            Err(BindError::AlreadyBound(_)) if import.replace => match work.to.rebind(name, object.as_ref()) {
                Ok(()) => ImportOutcome::Bound,
                Err(error) => ImportOutcome::NotBound(rebind_message(error)),
            },
            Err(error) => ImportOutcome::NotBound(bind_message(error)),
        }
    })
}

fn bind_at_once(
    control: &ControlRef,
    work: &ContextCopy,
    names: &[Vec<NameComponent>],
    import: Import<'_>,
) -> Vec<ImportOutcome> {
    let found = in_parallel(import.jobs, names, |name| work.from.resolve(name).map_err(rebind_message));
    let bindings: Vec<NewBinding> = names
        .iter()
        .zip(&found)
        .filter_map(|(name, found)| {
            let (name, target) = (name.first()?.clone(), found.as_ref().ok()?.clone());
            Some(NewBinding { name, target })
        })
        .collect();
    let bound = match control.bind_all(&work.name, &bindings, import.replace) {
        Ok(outcomes) => Ok(outcomes),
        Err(error) => Err(control::backup_message(error)),
    };
    let mut outcomes = bound.as_ref().map(|outcomes| outcomes.iter()).unwrap_or_default();
    names
        .iter()
        .zip(found)
        .map(|(name, found)| match (found, &bound) {
            (Err(reason), _) => ImportOutcome::NotBound(reason),
            (Ok(_), Err(reason)) => ImportOutcome::NotBound(reason.clone()),
            (Ok(object), Ok(_)) => match outcomes.next() {
                Some(BindOutcome::BoundNow) => ImportOutcome::Bound,
                Some(BindOutcome::BoundBefore) if is_bound_to(&work.to, name, object.as_ref()) => ImportOutcome::Same,
                Some(BindOutcome::BoundBefore) => ImportOutcome::NotBound("the name is bound already".to_owned()),
                Some(BindOutcome::BoundToContext) => {
                    ImportOutcome::NotBound("the name is bound to a context".to_owned())
                }
                None => ImportOutcome::NotBound("the server answers for too few names".to_owned()),
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_results_have_the_order_of_the_names() {
        let names: Vec<Vec<NameComponent>> =
            (0..50).map(|number| vec![NameComponent { id: number.to_string(), kind: String::new() }]).collect();
        for jobs in [1, 7, 100] {
            let ids = in_parallel(jobs, &names, |name| name[0].id.clone());
            assert_eq!(ids, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
        }
        assert!(in_parallel(4, &[], |_| ()).is_empty());
    }
}
