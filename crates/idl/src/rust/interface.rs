//! Generation of interfaces: servant trait, typed reference with stubs, and skeleton.

use super::data::tail;
use super::hash::PerfectHash;
use super::names::{escaped, free, snake};
use super::path::Part;
use super::writer::{CodeLine, CodeWriter};
use super::{Generator, LintedItem};
use crate::ast::{Direction, InterfaceFlavor};
use crate::model::{DefinitionId, DefinitionKind, Interface, Parameter, Type};
use std::collections::HashSet;

const REFERENCE_METHODS: [&str; 10] = [
    "as_object",
    "from_object",
    "is_equivalent",
    "narrow",
    "unchecked_narrow",
    "with_canceller",
    "with_connect_timeout",
    "with_context",
    "with_policies",
    "with_timeout",
];

/// One operation on the wire; an attribute has one for reading and, if it is writable, one for
/// writing.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) of: DefinitionId,
    pub(super) wire: String,
    pub(super) method: String,
    pub(super) oneway: bool,
    pub(super) result: Option<Type>,
    pub(super) parameters: Vec<(Parameter, String)>,
    pub(super) raises: Vec<DefinitionId>,
    pub(super) sets: bool,
    pub(super) wcet_microseconds: Option<u32>,
    pub(super) context: Vec<String>,
}

impl Call {
    fn name(&self) -> String {
        self.method.clone()
    }

    pub(super) fn inputs(&self) -> impl Iterator<Item = &(Parameter, String)> {
        self.parameters.iter().filter(|(parameter, _)| parameter.direction != Direction::Out)
    }

    pub(super) fn outputs(&self) -> Vec<(Type, String)> {
        let result = self.result.iter().map(|ty| (ty.clone(), "result".to_owned()));
        let out = self.parameters.iter().filter(|(parameter, _)| parameter.direction != Direction::In);
        result.chain(out.map(|(parameter, name)| (parameter.ty.clone(), name.clone()))).collect()
    }

    pub(super) fn local(&self, wanted: &str) -> String {
        let mut taken: HashSet<String> = self.parameters.iter().map(|(_, name)| name.clone()).collect();
        free(wanted.to_owned(), &mut taken)
    }
}

impl Generator<'_> {
    pub(super) fn calls(&self, members: &[DefinitionId]) -> Vec<Call> {
        let mut calls = Vec::new();
        for member in members {
            let definition = self.model().get(*member);
            let wire = self.text(definition.name).to_owned();
            match &definition.kind {
                DefinitionKind::Operation(operation) => {
                    let mut taken = HashSet::new();
                    let named = operation.parameters.iter().map(|parameter| {
                        let name = free(escaped(snake(self.text(parameter.name))), &mut taken);
                        (parameter.clone(), name)
                    });
                    calls.push(Call {
                        of: *member,
                        wire,
                        method: self.name(*member),
                        oneway: operation.is_oneway,
                        result: operation.result.clone(),
                        parameters: named.collect(),
                        raises: operation.raises.clone(),
                        sets: false,
                        wcet_microseconds: operation.wcet_microseconds,
                        context: operation.context.clone(),
                    });
                }
                DefinitionKind::Attribute(attribute) => {
                    let get = Call {
                        of: *member,
                        wire: format!("_get_{wire}"),
                        method: self.name(*member),
                        oneway: false,
                        result: Some(attribute.ty.clone()),
                        parameters: Vec::new(),
                        raises: attribute.get_raises.clone(),
                        sets: false,
                        wcet_microseconds: None,
                        context: Vec::new(),
                    };
                    let set = self.names.setter.get(member).map(|method| {
                        let parameter = Parameter {
                            direction: Direction::In,
                            name: definition.name,
                            ty: attribute.ty.clone(),
                            annotations: Vec::new(),
                        };
                        let name = escaped(snake(&wire));
                        Call {
                            wire: format!("_set_{wire}"),
                            method: method.clone(),
                            result: None,
                            parameters: vec![(parameter, name)],
                            raises: attribute.set_raises.clone(),
                            sets: true,
                            ..get.clone()
                        }
                    });
                    calls.push(get);
                    calls.extend(set);
                }
                _ => {}
            }
        }
        calls
    }

    pub(super) fn interface(&mut self, id: DefinitionId, interface: &Interface, out: &mut CodeWriter) {
        let calls = self.calls(&interface.members);
        if interface.flavor == InterfaceFlavor::Local {
            return self.local_interface(id, interface, &calls, out);
        }
        if !interface.is_defined {
            return self.announced_interface(id, out);
        }
        self.servant_trait(id, interface, &calls, out);
        self.reference(id, interface, &calls, out);
        self.skeleton(id, interface, &calls, out);
        if interface.flavor == InterfaceFlavor::Abstract {
            let (name, reference) = (self.name(id), self.names.reference[&id].clone());
            let (object, either) = (self.object_name(id), self.runtime("ObjectOrValue"));
            out.gap();
            let plain = name.trim_start_matches("r#");
            out.line(&format!("/// An object reference or a value of the abstract interface [`{plain}`]."));
            self.attributes(LintedItem::Type, out);
            out.line(&format!("pub type {reference} = {either}<{object}, dyn {name}>;"));
            self.abstract_kind(id, out);
        }
    }

    fn object_name(&self, id: DefinitionId) -> String {
        self.names.object.get(&id).unwrap_or(&self.names.reference[&id]).clone()
    }

    fn path_to_object(&self, id: DefinitionId) -> String {
        let mut path = self.module_path(id);
        path.push(self.object_name(id));
        self.relative(&path)
    }

    fn local_interface(&mut self, id: DefinitionId, interface: &Interface, calls: &[Call], out: &mut CodeWriter) {
        let (name, reference) = (self.name(id), self.names.reference[&id].clone());
        self.open_trait(id, interface, out);
        for call in calls {
            self.document_call(call, out);
            let (before, parameters, after) = self.signature(id, call);
            out.signature(&format!("fn {before}"), &parameters, &after, ";");
        }
        out.gap();
        out.line("/// Wraps the object for use in local operations.");
        out.line(&format!("fn local(this: Self) -> {reference}"));
        out.open("where");
        out.line("Self: Sized,");
        out.close("{");
        out.open_again();
        out.line(&format!("let object: std::sync::Arc<dyn {name}> = std::sync::Arc::new(this);"));
        out.line("object.into()");
        out.close("}");
        out.close("}");
        let local = self.runtime("LocalRef");
        out.gap();
        out.line(&format!("/// A reference-counted [`{}`].", name.trim_start_matches("r#")));
        self.attributes(LintedItem::Type, out);
        out.line(&format!("pub type {reference} = {local}<dyn {name}>;"));
    }

    fn announced_interface(&mut self, id: DefinitionId, out: &mut CodeWriter) {
        let name = self.object_name(id);
        let object = self.runtime("ObjectRef");
        self.attributes(LintedItem::Type, out);
        out.line("#[derive(Clone, Debug, PartialEq, Eq, Hash)]");
        out.line(&format!("pub struct {name}({object});"));
        self.reference_trait(id, &name, "self.0", "object", out);
    }

    fn open_trait(&mut self, id: DefinitionId, interface: &Interface, out: &mut CodeWriter) {
        let name = self.name(id);
        let bases: Vec<String> = interface.bases.iter().map(|base| self.path_to_trait(*base)).collect();
        let bounds = if bases.is_empty() { "Send + Sync + 'static".to_owned() } else { bases.join(" + ") };
        self.document(id, out);
        self.attributes(LintedItem::Calls, out);
        let head = format!("pub trait {name}: {bounds} {{");
        // rustfmt breaks bounds eight columns earlier than other lines.
        if out.has_room(head.len() + 8) {
            out.open(&head);
        } else {
            out.open(&format!("pub trait {name}:"));
            if out.has_room(bounds.len()) {
                out.line(&bounds);
            } else {
                for (at, base) in bases.iter().enumerate() {
                    out.line(&if at == 0 { base.clone() } else { format!("+ {base}") });
                }
            }
            out.close("{");
            out.open_again();
        }
    }

    fn servant_trait(&mut self, id: DefinitionId, interface: &Interface, calls: &[Call], out: &mut CodeWriter) {
        let name = self.name(id);
        self.open_trait(id, interface, out);
        for call in calls {
            self.document_call(call, out);
            let (before, parameters, after) = self.signature(id, call);
            out.signature(&format!("fn {before}"), &parameters, &after, ";");
        }
        let (servant, skeleton) = (self.runtime("Servant"), self.names.skeleton[&id].clone());
        out.gap();
        out.line("/// Wraps the object in a servant, for activation in a POA.");
        out.line(&format!("fn servant(this: Self) -> {servant}"));
        out.open("where");
        out.line("Self: Sized,");
        out.close("{");
        out.open_again();
        out.line(&format!("{name}::servant_of(std::sync::Arc::new(this))"));
        out.close("}");
        out.gap();
        out.line("/// Wraps a shared object in a servant, for activation in a POA.");
        out.line(&format!("fn servant_of(this: std::sync::Arc<Self>) -> {servant}"));
        out.open("where");
        out.line("Self: Sized,");
        out.close("{");
        out.open_again();
        out.line(&format!("{servant}::new({skeleton}(this))"));
        out.close("}");
        out.close("}");
    }

    pub(super) fn document_call(&mut self, call: &Call, out: &mut CodeWriter) {
        if call.sets {
            out.line(&format!("/// Sets `{}`.", self.text(self.model().get(call.of).name)));
        } else {
            self.document(call.of, out);
        }
    }

    pub(super) fn signature(&mut self, interface: DefinitionId, call: &Call) -> (String, Vec<String>, String) {
        let mut parameters = vec!["&self".to_owned()];
        for (parameter, name) in call.inputs() {
            let ty = self.borrowed(&parameter.ty);
            parameters.push(format!("{name}: {ty}"));
        }
        let outputs = self.output_type(call);
        let error = self.error_type(interface, call);
        (format!("{}(", call.method), parameters, format!("Result<{outputs}, {error}>"))
    }

    fn output_type(&mut self, call: &Call) -> String {
        let types: Vec<String> = call.outputs().iter().map(|(ty, _)| self.owned(ty)).collect();
        match types.as_slice() {
            [one] => one.clone(),
            _ => format!("({})", types.join(", ")),
        }
    }

    pub(super) fn error_type(&mut self, interface: DefinitionId, call: &Call) -> String {
        match self.errors.get(&(interface, call.raises.clone())).cloned() {
            Some(name) => {
                let mut path = self.inner_path(interface);
                path.push(name);
                self.relative(&path)
            }
            None => self.runtime("SystemException"),
        }
    }

    fn reference(&mut self, id: DefinitionId, interface: &Interface, calls: &[Call], out: &mut CodeWriter) {
        let name = self.object_name(id);
        let servant = self.name(id);
        let first = interface.bases.first().copied();
        out.gap();
        out.line(&format!("/// A reference to a [`{}`].", servant.trim_start_matches("r#")));
        self.attributes(LintedItem::Type, out);
        out.line("#[derive(Clone, Debug, PartialEq, Eq, Hash)]");
        match first {
            None => {
                let object = self.runtime("ObjectRef");
                out.line(&format!("pub struct {name}({object});"));
                self.reference_trait(id, &name, "&self.0", "object", out);
            }
            Some(base) => {
                let (base, reference) = (self.path_to_object(base), self.runtime("Reference"));
                out.line(&format!("pub struct {name}({base});"));
                self.reference_trait(
                    id,
                    &name,
                    &format!("{reference}::as_object(&self.0)"),
                    &format!("{reference}::from_object(object)"),
                    out,
                );
                out.gap();
                out.open(&format!("impl std::ops::Deref for {name} {{"));
                out.line(&format!("type Target = {base};"));
                out.gap();
                out.open(&format!("fn deref(&self) -> &{base} {{"));
                out.line("&self.0");
                out.close("}");
                out.close("}");
                self.widening(id, &name, out);
            }
        }
        let further = self.further_calls(interface);
        if calls.is_empty() && further.is_empty() {
            return;
        }
        out.gap();
        self.attributes(LintedItem::Calls, out);
        out.open(&format!("impl {name} {{"));
        let mut taken: HashSet<String> = further.iter().map(|(_, call)| call).chain(calls).map(Call::name).collect();
        for (of, call) in calls.iter().map(|call| (id, call)).chain(further.iter().map(|(base, call)| (*base, call))) {
            out.gap();
            self.stub(of, call, out);
            self.stub_into(of, call, &mut taken, out);
        }
        out.close("}");
    }

    fn reference_trait(&mut self, id: DefinitionId, name: &str, inner: &str, made: &str, out: &mut CodeWriter) {
        let (reference, object) = (self.runtime("Reference"), self.runtime("ObjectRef"));
        let inner = if inner == "self.0" { "&self.0" } else { inner };
        let repository_id = self.repository_id(id);
        out.gap();
        out.open(&format!("impl {reference} for {name} {{"));
        out.assign("const REPOSITORY_ID: &'static str", &format!("{repository_id:?}"));
        out.gap();
        out.open(&format!("fn from_object(object: {object}) -> Self {{"));
        out.line(&format!("Self({made})"));
        out.close("}");
        out.gap();
        out.open(&format!("fn as_object(&self) -> &{object} {{"));
        out.line(inner);
        out.close("}");
        out.close("}");
        out.gap();
        out.line(&format!("corelane::reference_methods! {{ {} }}", self.reference_methods(id, name)));
        out.gap();
        out.open(&format!("impl std::fmt::Display for {name} {{"));
        out.open("fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {");
        out.line(&format!("std::fmt::Display::fmt({reference}::as_object(self), f)"));
        out.close("}");
        out.close("}");
    }

    /// Returns the arguments of `reference_methods!`: the reference type and, if operations have
    /// the names of some of the methods, a list of the other methods.
    fn reference_methods(&self, id: DefinitionId, name: &str) -> String {
        let interfaces = std::iter::once(id).chain(self.model().all_bases(id));
        let operations: HashSet<String> = interfaces
            .filter_map(|interface| match &self.model().get(interface).kind {
                DefinitionKind::Interface(known) => Some(self.calls(&known.members)),
                _ => None,
            })
            .flatten()
            .map(|call| call.method)
            .collect();
        let free: Vec<&str> = REFERENCE_METHODS.into_iter().filter(|method| !operations.contains(*method)).collect();
        if free.len() == REFERENCE_METHODS.len() { name.to_owned() } else { format!("{name}: {}", free.join(" ")) }
    }

    fn widening(&mut self, id: DefinitionId, name: &str, out: &mut CodeWriter) {
        let reference = self.runtime("Reference");
        for base in self.model().all_bases(id) {
            let base = self.path_to_object(base);
            out.gap();
            out.open(&format!("impl From<{name}> for {base} {{"));
            out.open(&format!("fn from(derived: {name}) -> Self {{"));
            out.line(&format!("{reference}::unchecked_narrow({reference}::as_object(&derived))"));
            out.close("}");
            out.close("}");
        }
    }

    /// Returns the operations that the reference type of the first base does not have.
    fn further_calls(&self, interface: &Interface) -> Vec<(DefinitionId, Call)> {
        let Some((first, rest)) = interface.bases.split_first() else { return Vec::new() };
        let mut seen: HashSet<DefinitionId> = self.model().all_bases(*first).into_iter().collect();
        seen.insert(*first);
        let mut calls = Vec::new();
        for base in rest.iter().flat_map(|base| std::iter::once(*base).chain(self.model().all_bases(*base))) {
            if seen.insert(base)
                && let DefinitionKind::Interface(known) = &self.model().get(base).kind
            {
                calls.extend(self.calls(&known.members).into_iter().map(|call| (base, call)));
            }
        }
        calls
    }

    fn stub(&mut self, interface: DefinitionId, call: &Call, out: &mut CodeWriter) {
        self.document_call(call, out);
        let (before, parameters, after) = self.signature(interface, call);
        out.signature(&format!("pub fn {before}"), &parameters, &after, " {");
        out.open_again();
        let (operation, reference) = (self.runtime("Operation"), self.runtime("Reference"));
        let (object, local, e, servant) =
            (call.local("this"), call.local("local"), call.local("e"), call.local("servant"));
        let context = call.local("context");
        let trait_path = self.path_to_trait(interface);
        out.assign(&format!("static OPERATION: {operation}<'_>"), &format!("{operation}::new({:?})", call.wire));
        if !call.context.is_empty() {
            let patterns: Vec<String> = call.context.iter().map(|pattern| format!("{pattern:?}")).collect();
            out.table("const CONTEXT: &[&str] = &[", &patterns, "];");
        }
        out.line(&format!("let {object} = {reference}::as_object(self);"));
        if !call.context.is_empty() {
            out.line(&format!("let {context} = {object}.context_for(CONTEXT);"));
        }
        let arguments: Vec<String> = call.inputs().map(|(_, name)| name.clone()).collect();
        let head = format!("let {local} = |{servant}: &(dyn {trait_path} + 'static)|");
        let joined = arguments.join(", ");
        let body = format!("{servant}.{}({joined})", call.method);
        if !call.context.is_empty() {
            out.open(&format!("{head} {{"));
            out.line(&format!("let _context = {context}.enter();"));
            self.direct_call(call, &servant, &trait_path, arguments, out);
            out.close("};");
        } else if joined.len() <= 60 && out.has_room(head.len() + body.len() + 2) {
            out.line(&format!("{head} {body};"));
        } else if joined.len() <= 60 && out.has_room(head.len() + body.len() + 2 - local.len() - 3) {
            let closure = head.strip_prefix(&format!("let {local} = ")).unwrap_or(&head);
            out.broken(&format!("let {local}"), &format!("{closure} {body};"));
        } else if out.has_room(head.len() + 4) {
            out.open(&format!("{head} {{"));
            self.direct_call(call, &servant, &trait_path, arguments, out);
            out.close("};");
        } else {
            out.open(&format!("let {local} ="));
            out.open(&format!("|{servant}: &(dyn {trait_path} + 'static)| {{"));
            self.direct_call(call, &servant, &trait_path, arguments, out);
            out.close("};");
            out.outdent();
        }
        out.open(&format!("if let Some({servant}) = {object}.poa_bypass_servant() {{"));
        out.line(&format!("return {local}({servant});"));
        out.close("}");
        out.open(&format!("if let Some(outcome) = {object}.call_collocated(&OPERATION, {local}) {{"));
        out.line("return outcome;");
        out.close("}");
        let mut body = self.encode_arguments(call, &e);
        if !call.context.is_empty() {
            body.push(CodeLine::plain(format!("{context}.write({e})?;")));
        }
        let outputs = call.outputs();
        let raising = self.errors.contains_key(&(interface, call.raises.clone()));
        if call.oneway {
            invocation(&format!("{object}.send_oneway("), &["&OPERATION".to_owned()], &body, &e, out);
        } else {
            let mut first = vec!["&OPERATION".to_owned()];
            if !outputs.is_empty() {
                let results = call.local("results");
                self.read_outputs(&results, &outputs, out);
                first.push(results);
            }
            let method = match (outputs.is_empty(), raising) {
                (true, false) => "call_void",
                (true, true) => "call_void_raising",
                (false, false) => "call",
                (false, true) => "call_raising",
            };
            invocation(&format!("{object}.{method}("), &first, &body, &e, out);
        }
        out.close("}");
    }

    pub(super) fn encode_arguments(&mut self, call: &Call, e: &str) -> Vec<CodeLine> {
        let mut body = Vec::new();
        for (parameter, name) in call.inputs() {
            let lines = self.encode_parameter(&parameter.ty, name, e);
            body.extend(self.named(lines, Part::Member, name, e));
        }
        body
    }

    fn direct_call(&self, call: &Call, servant: &str, trait_path: &str, arguments: Vec<String>, out: &mut CodeWriter) {
        let joined = arguments.join(", ");
        let line = format!("{servant}.{}({joined})", call.method);
        if joined.len() <= 60 && out.has_room(line.len()) {
            return out.line(&line);
        }
        // rustfmt would break such a long method call at its dot, so the call is written as a path.
        let arguments: Vec<String> = std::iter::once(servant.to_owned()).chain(arguments).collect();
        out.call(&format!("{trait_path}::{}(", call.method), &arguments, ")");
    }

    fn read_outputs(&mut self, left: &str, outputs: &[(Type, String)], out: &mut CodeWriter) {
        let head = format!("|d: &mut {}<'_>|", self.runtime("Decoder"));
        if let [(ty, name)] = outputs {
            let read = self.decode(ty, "d");
            let single = match self.named_read(read, name, "d") {
                super::code::DecodingCode::Expression(value) => {
                    value.strip_suffix('?').filter(|value| value.len() <= 72).map(str::to_owned)
                }
                super::code::DecodingCode::Block(..) => None,
            };
            if let Some(value) = single {
                let length = head.len() + 1 + value.len() + 1;
                if out.has_room(left.len() + 7 + length) {
                    return out.line(&format!("let {left} = {head} {value};"));
                }
                if out.has_room(length + 4) {
                    return out.broken(&format!("let {left}"), &format!("{head} {value};"));
                }
            }
        }
        out.open(&format!("let {left} = {head} {{"));
        let mut names = Vec::new();
        let mut taken = ["d", "len", "list", "map", "key", "value"].map(str::to_owned).into();
        for (ty, name) in outputs {
            let name = free(name.clone(), &mut taken);
            let lines = self.decode_into(ty, &name, "d");
            out.lines(&self.named(lines, Part::Member, &name, "d"));
            names.push(name);
        }
        match names.as_slice() {
            [one] => out.line(&format!("Ok({one})")),
            _ => out.call("Ok((", &names, "))"),
        }
        out.close("};");
    }

    fn skeleton(&mut self, id: DefinitionId, interface: &Interface, calls: &[Call], out: &mut CodeWriter) {
        let (name, servant) = (self.names.skeleton[&id].clone(), self.name(id));
        out.gap();
        self.attributes(LintedItem::Type, out);
        out.line("#[doc(hidden)]");
        let field = format!("std::sync::Arc<dyn {servant}>");
        if out.has_room(name.len() + field.len() + 14) {
            out.line(&format!("pub struct {name}({field});"));
        } else {
            out.open(&format!("pub struct {name}("));
            out.line(&format!("{field},"));
            out.close(");");
        }
        let own: Vec<&str> = calls.iter().map(|call| call.wire.as_str()).collect();
        let own_table = PerfectHash::of(&own);
        if !calls.is_empty() {
            self.dispatcher(id, &name, &servant, calls, &own_table, out);
        }
        let (skeleton, server_call, exception) =
            (self.runtime("Skeleton"), self.runtime("ServerCall"), self.runtime("SystemException"));
        let bases = self.model().all_bases(id);
        let ids: Vec<String> = std::iter::once(id)
            .chain(bases.iter().copied())
            .map(|id| format!("{:?}", self.repository_id(id)))
            .collect();
        out.gap();
        out.open(&format!("impl {skeleton} for {name} {{"));
        out.open("fn repository_ids(&self) -> &'static [&'static str] {");
        out.table("&[", &ids, "]");
        out.close("}");
        out.gap();
        let parameters = ["&self".to_owned(), "operation: &[u8]".to_owned(), format!("call: &mut {server_call}<'_>")];
        out.signature("fn dispatch(", &parameters, &format!("Result<(), {exception}>"), " {");
        out.open_again();
        self.dispatch(id, interface, &own_table, calls, out);
        out.close("}");
        out.gap();
        let query = self.runtime("InterfaceQuery");
        out.open(&format!("fn query_interface<'s>(&'s self, query: &mut {query}<'s>) {{"));
        for base in std::iter::once(id).chain(bases) {
            let path = self.path_to_trait(base);
            out.line(&format!("query.provide::<_, dyn {path}>(&self.0, |this| this, |this| this);"));
        }
        out.close("}");
        out.close("}");
    }

    fn dispatcher(
        &mut self,
        id: DefinitionId,
        name: &str,
        servant: &str,
        calls: &[Call],
        table: &PerfectHash,
        out: &mut CodeWriter,
    ) {
        let (server_call, exception) = (self.runtime("ServerCall"), self.runtime("SystemException"));
        out.gap();
        self.attributes(LintedItem::Calls, out);
        out.open(&format!("impl {name} {{"));
        out.line("#[doc(hidden)]");
        let mut arms = CodeWriter::at(out.indent() + 2);
        for (slot, index) in table.order.iter().enumerate() {
            arms.open(&format!("{slot} => {{"));
            self.upcall(id, &calls[*index], &mut arms);
            arms.close("}");
        }
        let arms = arms.finish();
        let unused = if arms.contains("call.") || arms.contains("(call)") { "" } else { "_" };
        let parameters = [
            format!("servant: &dyn {servant}"),
            "operation: usize".to_owned(),
            format!("{unused}call: &mut {server_call}<'_>"),
        ];
        out.signature("pub fn call(", &parameters, &format!("Result<(), {exception}>"), " {");
        out.open_again();
        out.open("match operation {");
        out.append(&arms);
        out.line(&format!("_ => Err({exception}::bad_operation()),"));
        out.close("}");
        out.close("}");
        out.close("}");
    }

    fn upcall(&mut self, interface: DefinitionId, call: &Call, out: &mut CodeWriter) {
        let mut taken: HashSet<String> =
            ["call", "servant", "operation", "d", "e", "result", "len", "list", "map", "key", "value", "error"]
                .map(str::to_owned)
                .into();
        let mut arguments = Vec::new();
        if call.inputs().next().is_some() || !call.context.is_empty() {
            out.line("let d = call.arguments();");
        }
        for (parameter, name) in call.inputs() {
            let name = free(name.clone(), &mut taken);
            let (lines, argument) = self.decode_argument(&parameter.ty, &name, "d");
            out.lines(&self.named(lines, Part::Argument, &name, "d"));
            arguments.push(argument);
        }
        if !call.context.is_empty() {
            let context = self.runtime("Context");
            out.line(&format!("let _context = {context}::begin(d)?;"));
        }
        let outputs = call.outputs();
        let names: Vec<String> = match outputs.len() {
            0 => Vec::new(),
            1 => vec!["result".to_owned()],
            // The result comes first and keeps its name; an `out` parameter with the same name gets
            // another name.
            _ => outputs
                .iter()
                .enumerate()
                .map(|(at, (_, name))| match at {
                    0 if call.result.is_some() => name.clone(),
                    _ => free(name.clone(), &mut taken),
                })
                .collect(),
        };
        let pattern = match names.as_slice() {
            [one] => one.clone(),
            _ => format!("({})", names.join(", ")),
        };
        let raising = self.errors.contains_key(&(interface, call.raises.clone()));
        let mut before = format!("servant.{}(", call.method);
        let joined = arguments.join(", ");
        if joined.len() > 60 || !out.has_room(4 + before.len() + joined.len() + 3) {
            // rustfmt would break such a long method call at its dot, so the call is written as a
            // path.
            before = format!("{}::{}(", self.path_to_trait(interface), call.method);
            arguments.insert(0, "servant".to_owned());
        }
        match (raising, names.is_empty()) {
            (false, true) => out.call(&before, &arguments, ")?;"),
            (false, false) => out.assign_call(&format!("let {pattern}"), &before, &arguments, ")?;"),
            (true, true) => {
                let invoked = format!("{before}{})", arguments.join(", "));
                if joined.len() <= 60 && out.has_room(invoked.len() + 22) {
                    out.open(&format!("if let Err(error) = {invoked} {{"));
                } else {
                    out.assign_call("let outcome", &before, &arguments, ");");
                    out.open("if let Err(error) = outcome {");
                }
                out.line("return error.raise(call);");
                out.close("}");
            }
            (true, false) => {
                out.assign_call("let outcome", &before, &arguments, ");");
                let head = format!("let {pattern} = match outcome {{");
                let short = out.has_room(head.len());
                out.open(if short { &head } else { "let outcome = match outcome {" });
                out.line("Ok(outcome) => outcome,");
                out.line("Err(error) => return error.raise(call),");
                out.close("};");
                if !short {
                    out.call("let (", &names, ") = outcome;");
                }
            }
        }
        let mut body = Vec::new();
        for ((ty, _), name) in outputs.iter().zip(&names) {
            let lines = self.encode_result(ty, name, "e");
            body.extend(self.named(lines, Part::Result, name, "e"));
        }
        if !body.is_empty() {
            out.line("let e = call.reply();");
        }
        body.push(CodeLine::plain("Ok(())"));
        out.lines(&body);
    }

    fn dispatch(
        &mut self,
        id: DefinitionId,
        interface: &Interface,
        own: &PerfectHash,
        calls: &[Call],
        out: &mut CodeWriter,
    ) {
        let exception = self.runtime("SystemException");
        let mut all: Vec<Slot> = slots(id, own, calls);
        for base in self.model().all_bases(id) {
            if let DefinitionKind::Interface(known) = &self.model().get(base).kind {
                let calls = self.calls(&known.members);
                let wire: Vec<&str> = calls.iter().map(|call| call.wire.as_str()).collect();
                all.extend(slots(base, &PerfectHash::of(&wire), &calls));
            }
        }
        if all.is_empty() {
            out.line("let (_, _) = (operation, call);");
            out.line(&format!("Err({exception}::bad_operation())"));
            return;
        }
        let table = self.runtime("OperationTable");
        let names: Vec<&str> = all.iter().map(|slot| slot.name.as_str()).collect();
        let hash =
            if interface.bases.is_empty() { PerfectHash::of(&own_names(calls)) } else { PerfectHash::of(&names) };
        let displacements: Vec<String> = hash.displacements.iter().map(u16::to_string).collect();
        let ordered: Vec<String> = match interface.bases.is_empty() {
            true => hash.order.iter().map(|index| format!("{:?}", calls[*index].wire)).collect(),
            false => hash.order.iter().map(|index| format!("{:?}", all[*index].name)).collect(),
        };
        let worst_cases: Vec<u32> = match interface.bases.is_empty() {
            true => hash.order.iter().map(|index| calls[*index].wcet_microseconds.unwrap_or(0)).collect(),
            false => hash.order.iter().map(|index| all[*index].wcet_microseconds).collect(),
        };
        let is_timed = worst_cases.iter().any(|time| *time > 0);
        out.table("const NAMES: &[&str] = &[", &ordered, "];");
        out.table("const DISPLACEMENTS: &[u16] = &[", &displacements, "];");
        let mut made = format!("{table}::new({}, DISPLACEMENTS, NAMES)", hash.seed);
        if is_timed {
            let worst_cases: Vec<String> = worst_cases.iter().map(u32::to_string).collect();
            out.table("const WORST_CASES: &[u32] = &[", &worst_cases, "];");
            made = format!("{table}::with_wcet({}, DISPLACEMENTS, NAMES, WORST_CASES)", hash.seed);
        }
        out.assign(&format!("static OPERATIONS: {table}"), &made);
        let mut skeletons = std::collections::HashMap::from([(id, "Self".to_owned())]);
        let mut taken = HashSet::from([self.names.skeleton[&id].clone()]);
        for Slot { of: base, .. } in all.iter().filter(|_| !interface.bases.is_empty()) {
            if !skeletons.contains_key(base) {
                let path = self.path_to_skeleton(*base);
                let short = free(self.names.skeleton[base].clone(), &mut taken);
                if path != short {
                    out.assign(&format!("type {short}"), &path);
                }
                skeletons.insert(*base, short);
            }
        }
        if is_timed {
            out.line("let found = OPERATIONS.find(operation);");
            out.open("OPERATIONS.run_measured(found, call, |call| match found {");
        } else {
            out.open("match OPERATIONS.find(operation) {");
        }
        if interface.bases.is_empty() {
            out.line("Some(operation) => Self::call(&*self.0, operation, call),");
        } else {
            for (slot, index) in hash.order.iter().enumerate() {
                let Slot { of: base, number: own, .. } = &all[*index];
                let skeleton = &skeletons[base];
                out.arm(&format!("Some({slot})"), &format!("{skeleton}::call(&*self.0, {own}, call)"));
            }
        }
        let rest = if interface.bases.is_empty() { "None" } else { "_" };
        out.line(&format!("{rest} => Err({exception}::bad_operation()),"));
        out.close(if is_timed { "})" } else { "}" });
    }

    /// Plans the error types of an interface: one enumeration for each distinct list of exceptions.
    ///
    /// The enumeration is named after the first operation with its list. Further operations with
    /// this list get an alias.
    pub(super) fn plan_errors(&mut self, id: DefinitionId, calls: Vec<Call>) {
        let mut taken = self.names.taken.remove(&Some(id)).unwrap_or_default();
        for call in calls.into_iter().filter(|call| !call.raises.is_empty()) {
            let attribute = matches!(self.model().get(call.of).kind, DefinitionKind::Attribute(_));
            let wire = if attribute { &call.wire["_get_".len()..] } else { &call.wire };
            let operation = super::names::upper_camel(wire);
            let name = if call.sets { format!("Set{operation}Error") } else { format!("{operation}Error") };
            let name = free(name, &mut taken);
            let key = (id, call.raises.clone());
            if let Some(same) = self.errors.get(&key) {
                self.error_aliases.entry(id).or_default().push((name, same.clone()));
            } else {
                self.errors.insert(key, name.clone());
                self.error_list.entry(id).or_default().push((name, call.raises));
            }
        }
        self.names.taken.insert(Some(id), taken);
    }

    pub(super) fn error_alias(alias: &str, name: &str, out: &mut CodeWriter) {
        out.gap();
        out.line("/// The errors of an operation that raises the same exceptions as another operation.");
        out.line(&format!("pub type {alias} = {name};"));
    }

    pub(super) fn error(&mut self, name: &str, raises: &[DefinitionId], out: &mut CodeWriter) {
        let mut taken = HashSet::from(["System".to_owned()]);
        out.gap();
        out.open("corelane::raises! {");
        out.line("/// The errors of an operation: its exceptions, or a system exception.");
        out.open(&format!("pub enum {name} {{"));
        for id in raises {
            let variant = free(self.name(*id).trim_start_matches("r#").to_owned(), &mut taken);
            out.line(&format!("{variant}({}),", self.path_to(*id)));
        }
        out.close("}");
        out.close("}");
    }
}

fn own_names(calls: &[Call]) -> Vec<&str> {
    calls.iter().map(|call| call.wire.as_str()).collect()
}

struct Slot {
    name: String,
    of: DefinitionId,
    number: usize,
    wcet_microseconds: u32,
}

fn slots(id: DefinitionId, table: &PerfectHash, calls: &[Call]) -> Vec<Slot> {
    let slot = |(number, index): (usize, &usize)| {
        let call = &calls[*index];
        Slot { name: call.wire.clone(), of: id, number, wcet_microseconds: call.wcet_microseconds.unwrap_or(0) }
    };
    table.order.iter().enumerate().map(slot).collect()
}

/// Writes a call of the ORB. `first` holds the arguments in front of the closure that writes the
/// operation's arguments.
pub(super) fn invocation(before: &str, first: &[String], body: &[CodeLine], e: &str, out: &mut CodeWriter) {
    let lines = tail(body);
    let single = match lines.as_slice() {
        [_] if body.is_empty() => Some("&|_| Ok(())".to_owned()),
        [line] => line.text().map(|text| format!("&|{e}| {text}")),
        _ => None,
    };
    let first = first.join(", ");
    if let Some(closure) = single
        && first.len() + 2 + closure.len() <= 60
        && out.has_room(before.len() + first.len() + 2 + closure.len() + 1)
    {
        return out.line(&format!("{before}{first}, {closure})"));
    }
    out.open(&format!("{before}{first}, &|{e}| {{"));
    out.lines(&lines);
    out.close("})");
}
