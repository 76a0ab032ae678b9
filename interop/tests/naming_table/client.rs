//! Corelane's client for interop/naming.table.

use std::collections::HashMap;

use corelane::{ObjectRef, Orb, SystemException};
use corelane_interop::report::{FailedCheck, Report};
use corelane_services::naming::cos_naming::naming_context::{
    BindError, BindNewContextError, CannotProceed, DestroyError, NotFound, NotFoundReason, RebindError,
};
use corelane_services::naming::cos_naming::naming_context_ext::{ResolveStrError, ToStringError, ToUrlError};
use corelane_services::naming::cos_naming::{
    Binding, BindingIteratorRef, BindingType, NameComponent, NamingContextExtRef, NamingContextRef,
};
use corelane_services::naming::name;

/// Makes the calls of the table, and reports the results as the clients of other ORBs do.
pub(super) fn run(table: &str, objects: &[(&str, String)]) -> Report {
    let orb = Orb::new().unwrap();
    let object = |text: &String| orb.string_to_object(text).unwrap().unwrap();
    let mut client = Client(objects.iter().map(|(name, text)| ((*name).to_owned(), object(text))).collect());
    let mut report = Report::default();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (call, expected) = line.split_once(" -> ").unwrap();
        let words: Vec<&str> = call.split(' ').collect();
        let found = client.call(&words, expected).unwrap_or_else(|raised| client.show_raised(raised, expected));
        let check = words[0].to_owned();
        if found == expected {
            report.passed.push(check);
        } else {
            let line = format!("FAIL {check} expected {expected} got {found}");
            report.failed.push(FailedCheck { check, line });
        }
    }
    report
}

enum Raised {
    NotFound(NotFound),
    CannotProceed(CannotProceed),
    Named(&'static str),
    System(SystemException),
}

impl From<SystemException> for Raised {
    fn from(exception: SystemException) -> Self {
        Raised::System(exception)
    }
}

macro_rules! raised {
    ($error:ident { $($named:ident),* } $($found:ident $proceed:ident)?) => {
        impl From<$error> for Raised {
            fn from(error: $error) -> Self {
                match error {
                    $($error::$found(exception) => Raised::NotFound(exception),)?
                    $($error::$proceed(exception) => Raised::CannotProceed(exception),)?
                    $($error::$named(_) => Raised::Named(stringify!($named)),)*
                    $error::System(exception) => Raised::System(exception),
                }
            }
        }
    };
}

raised!(BindError { InvalidName, AlreadyBound } NotFound CannotProceed);
raised!(RebindError { InvalidName } NotFound CannotProceed);
raised!(BindNewContextError { InvalidName, AlreadyBound } NotFound CannotProceed);
raised!(ResolveStrError { InvalidName } NotFound CannotProceed);
raised!(DestroyError { NotEmpty });
raised!(ToStringError { InvalidName });
raised!(ToUrlError { InvalidAddress, InvalidName });

fn parse(text: &str) -> Vec<NameComponent> {
    if text == "-" { Vec::new() } else { name::to_name(text).unwrap() }
}

fn show(name: &[NameComponent]) -> String {
    if name.is_empty() { "-".to_owned() } else { name::to_string(name).unwrap() }
}

fn done<E: Into<Raised>>(result: Result<(), E>) -> Result<String, Raised> {
    result.map(|()| "done".to_owned()).map_err(Into::into)
}

fn names(context: &NamingContextExtRef) -> Result<String, Raised> {
    let (mut bindings, iterator) = context.list(1)?;
    if let Some(iterator) = iterator {
        while let (true, more) = iterator.next_n(2)? {
            bindings.extend(more);
        }
        iterator.destroy()?;
    }
    let shown = |binding: &Binding| {
        let end = if binding.binding_type == BindingType::Ncontext { "/" } else { "" };
        show(&binding.binding_name) + end
    };
    let mut names: Vec<String> = bindings.iter().map(shown).collect();
    names.sort();
    Ok(names.join(" "))
}

fn iterate(iterator: &BindingIteratorRef, operation: &str, argument: &str) -> Result<String, Raised> {
    match operation {
        "next_one" => Ok(iterator.next_one()?.0.to_string()),
        "next_n" => {
            let (is_there, bindings) = iterator.next_n(argument.parse().unwrap())?;
            Ok(format!("{is_there} {}", bindings.len()))
        }
        _ => done(iterator.destroy()),
    }
}

/// The objects that have a name in the table.
struct Client(HashMap<String, ObjectRef>);

impl Client {
    fn is(&self, object: &ObjectRef, name: &str) -> bool {
        self.0.get(name) == Some(object)
    }

    /// Shows an object as the expected result does, if it is the expected object.
    fn show_object(&mut self, object: Option<ObjectRef>, expected: &str) -> String {
        let Some(object) = object else { return "nil".to_owned() };
        match expected.split_once(' ') {
            Some(("new", name)) => {
                self.0.insert(name.to_owned(), object);
                expected.to_owned()
            }
            Some(("is", name)) if self.is(&object, name) => expected.to_owned(),
            _ => "another object".to_owned(),
        }
    }

    fn show_raised(&self, raised: Raised, expected: &str) -> String {
        match raised {
            Raised::NotFound(NotFound { why, rest_of_name }) => {
                let why = match why {
                    NotFoundReason::MissingNode => "missing_node",
                    NotFoundReason::NotContext => "not_context",
                    NotFoundReason::NotObject => "not_object",
                };
                format!("NotFound {why} {}", show(&rest_of_name))
            }
            Raised::CannotProceed(CannotProceed { cxt, rest_of_name }) => {
                let context = expected.split(' ').nth(1).unwrap_or_default();
                let shown = match cxt {
                    None => "nil",
                    Some(cxt) if self.is(cxt.as_object(), context) => context,
                    Some(_) => "another",
                };
                format!("CannotProceed {shown} {}", show(&rest_of_name))
            }
            Raised::Named(name) => name.to_owned(),
            Raised::System(exception) => exception.kind().to_string(),
        }
    }

    fn call(&mut self, words: &[&str], expected: &str) -> Result<String, Raised> {
        let [_, object, operation, arguments @ ..] = words else { panic!("{words:?}") };
        let argument = |index: usize| arguments.get(index).copied().unwrap_or_default();
        let (first, second) = (argument(0), argument(1));
        let object = self.0.get(*object).cloned().ok_or(Raised::Named("no object"))?;
        if ["next_one", "next_n", "destroy_iterator"].contains(operation) {
            return iterate(&BindingIteratorRef::unchecked_narrow(&object), operation, first);
        }
        let context = NamingContextExtRef::unchecked_narrow(&object);
        let target = self.0.get(second);
        let target_context = target.map(NamingContextRef::unchecked_narrow);
        let name = || parse(first);
        match *operation {
            "bind" => done(context.bind(&name(), target)),
            "rebind" => done(context.rebind(&name(), target)),
            "bind_context" => done(context.bind_context(&name(), target_context.as_ref())),
            "rebind_context" => done(context.rebind_context(&name(), target_context.as_ref())),
            "unbind" => done(context.unbind(&name())),
            "destroy" => done(context.destroy()),
            "names" => names(&context),
            "list" => {
                let (bindings, iterator) = context.list(first.parse().unwrap())?;
                let iterator = iterator.map(|iterator| iterator.as_object().clone());
                let (_, expected) = expected.split_once(' ').unwrap_or_default();
                Ok(format!("{} {}", bindings.len(), self.show_object(iterator, expected)))
            }
            "resolve" => {
                let found = context.resolve(&name())?;
                Ok(self.show_object(found, expected))
            }
            "resolve_str" => {
                let found = context.resolve_str(first)?;
                Ok(self.show_object(found, expected))
            }
            "new_context" => {
                let made = context.new_context()?;
                Ok(self.show_object(made.map(|made| made.as_object().clone()), expected))
            }
            "bind_new_context" => {
                let made = context.bind_new_context(&name())?;
                Ok(self.show_object(made.map(|made| made.as_object().clone()), expected))
            }
            "to_string" => Ok(NamingContextExtRef::to_string(&context, &name())?),
            "to_name" => Ok(show(&context.to_name(first)?)),
            "to_url" => Ok(context.to_url(if first == "-" { "" } else { first }, second)?),
            _ => panic!("there is no operation {operation}"),
        }
    }
}
