//! Generation of value types: the structure of the state, the reference type, and the trait of the
//! operations.

use super::code::{DecodingCode, EncodedExpression};
use super::data::{tail, write_value};
use super::interface::Call;
use super::names::{escaped, free, snake};
use super::path::Part;
use super::writer::{CodeLine, CodeWriter};
use super::{Generator, LintedItem};
use crate::ast::ValueFlavor;
use crate::model::{DefinitionId, DefinitionKind, OperationDeclaration, Type, ValueDeclaration};
use std::collections::HashSet;

impl Generator<'_> {
    pub(super) fn value(&mut self, id: DefinitionId, value: &ValueDeclaration, out: &mut CodeWriter) {
        if value.flavor == ValueFlavor::Abstract || !value.is_defined {
            return self.abstract_value(id, value, out);
        }
        let name = self.name(id);
        let base = self.base_with_state(value);
        self.document(id, out);
        self.attributes(LintedItem::Type, out);
        self.derive(id, &[], &[], out);
        let mut taken = HashSet::new();
        let mut fields = Vec::new();
        if base.is_some() {
            fields.push(free("base".to_owned(), &mut taken));
        }
        for (member, _) in &value.state {
            fields.push(free(escaped(snake(self.text(member.name))), &mut taken));
        }
        if fields.is_empty() {
            out.line(&format!("pub struct {name};"));
        } else {
            out.open(&format!("pub struct {name} {{"));
            if let Some(base) = base {
                let path = self.path_to_trait(base);
                out.line("/// The inherited state.");
                out.line(&format!("pub base: {path},"));
            }
            for ((member, public), field) in value.state.iter().zip(&fields[usize::from(base.is_some())..]) {
                self.document_member(member, out);
                if !public {
                    out.line("/// Private in IDL: for implementations of the type.");
                }
                let ty = self.owned(&member.ty);
                out.line(&format!("pub {field}: {ty},"));
            }
            out.close("}");
        }
        self.handle(id, &name, out);
        let value_type = self.runtime("ValueType");
        let (mut body, mut reads) = (Vec::new(), Vec::new());
        if base.is_some() {
            body.push(CodeLine::plain(format!("{value_type}::encode_state(&self.base, e)?;")));
            reads.push(DecodingCode::Expression(format!("{value_type}::decode_state(d)?")));
        }
        for ((member, _), field) in value.state.iter().zip(&fields[usize::from(base.is_some())..]) {
            let lines = self.encode(&member.ty, &EncodedExpression::Place(format!("self.{field}")), "e");
            body.extend(self.named(lines, Part::Member, field, "e"));
            let read = self.decode(&member.ty, "d");
            reads.push(self.named_read(read, field, "d"));
        }
        self.open_state(&name, &body, reads.is_empty(), out);
        write_value("Ok(Self", &fields, &reads, ")", out);
        out.close("}");
        out.close("}");
        self.describe_value(id, value, base, out);
        if self.has_operations(id) {
            self.value_operations(id, value, out);
        }
        self.value_factory(id, value, out);
    }

    fn handle(&mut self, id: DefinitionId, of: &str, out: &mut CodeWriter) {
        let (reference, value) = (self.names.reference[&id].clone(), self.runtime("ValueRef"));
        out.gap();
        out.line(&format!("/// A reference-counted [`{}`].", of.trim_start_matches("dyn ").trim_start_matches("r#")));
        self.attributes(LintedItem::Type, out);
        out.line(&format!("pub type {reference} = {value}<{of}>;"));
    }

    fn open_state(&mut self, name: &str, body: &[CodeLine], reads_nothing: bool, out: &mut CodeWriter) {
        let (value_type, encoder, decoder, error) =
            (self.runtime("ValueType"), self.runtime("Encoder"), self.runtime("Decoder"), self.runtime("CdrError"));
        out.gap();
        self.attributes(LintedItem::Type, out);
        out.open(&format!("impl {value_type} for {name} {{"));
        let parameter = format!("{}: &mut {encoder}<'_>", if body.is_empty() { "_" } else { "e" });
        out.signature("fn encode_state(", &["&self".to_owned(), parameter], &format!("Result<(), {error}>"), " {");
        out.open_again();
        out.lines(&tail(body));
        out.close("}");
        out.gap();
        let parameter = format!("{}: &mut {decoder}<'_>", if reads_nothing { "_" } else { "d" });
        out.signature("fn decode_state(", &[parameter], &format!("Result<Self, {error}>"), " {");
        out.open_again();
    }

    fn describe_value(
        &mut self,
        id: DefinitionId,
        value: &ValueDeclaration,
        base: Option<DefinitionId>,
        out: &mut CodeWriter,
    ) {
        let mut ids = vec![self.repository_id(id)];
        let (mut truncatable, mut at) = (0, Some(value));
        while let Some(known) = at.filter(|known| known.is_truncatable) {
            let Some(next) = self.base_with_state(known) else { break };
            truncatable += 1;
            ids.push(self.repository_id(next));
            at = self.value_of(next);
        }
        for ancestor in self.ancestors(id) {
            let id = self.repository_id(ancestor);
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let mut kinds = Vec::new();
        for ancestor in self.ancestors(id) {
            match &self.model().get(ancestor).kind {
                DefinitionKind::Value(value) if value.flavor != ValueFlavor::Abstract && value.is_defined => {
                    kinds.push(self.path_to_trait(ancestor));
                }
                DefinitionKind::Interface(interface) if interface.flavor != crate::ast::InterfaceFlavor::Abstract => {}
                _ => kinds.push(format!("dyn {}", self.path_to_trait(ancestor))),
            }
        }
        let base = base.map_or(String::new(), |base| format!(": {}", self.path_to_trait(base)));
        out.gap();
        let name = self.name(id);
        if let ([id], "", "", true) =
            (ids.as_slice(), base.as_str(), kinds.join(", ").as_str(), value.flavor == ValueFlavor::Plain)
        {
            return out.line(&format!("corelane::value_type! {{ {name} = [{id:?}] }}"));
        }
        out.open("corelane::value_type! {");
        out.open(&format!("{name}{base} = ["));
        ids.iter().for_each(|id| out.line(&format!("{id:?},")));
        let truncatable = if truncatable > 0 { format!(", truncatable to {truncatable}") } else { String::new() };
        let custom = if value.flavor == ValueFlavor::Custom { ", custom true" } else { "" };
        let kinds = if kinds.is_empty() { String::new() } else { format!("; {}", kinds.join(", ")) };
        out.close(&format!("]{truncatable}{custom}{kinds}"));
        out.close("}");
    }

    fn abstract_value(&mut self, id: DefinitionId, value: &ValueDeclaration, out: &mut CodeWriter) {
        let name = self.name(id);
        self.document(id, out);
        self.attributes(LintedItem::Calls, out);
        let bounds = self.value_bounds(value);
        out.open(&format!("pub trait {name}: {bounds} {{"));
        for call in self.calls(&value.members) {
            self.value_operation(id, &call, out);
        }
        out.close("}");
        self.handle(id, &format!("dyn {name}"), out);
        self.abstract_kind(id, out);
    }

    pub(super) fn abstract_kind(&mut self, id: DefinitionId, out: &mut CodeWriter) {
        let (name, repository_id) = (self.name(id), self.repository_id(id));
        out.gap();
        out.line(&format!("corelane::abstract_value! {{ {name} = {repository_id:?} }}"));
    }

    fn value_operation(&mut self, id: DefinitionId, call: &Call, out: &mut CodeWriter) {
        self.document_call(call, out);
        let (before, parameters, after) = self.signature(id, call);
        out.signature(&format!("fn {before}"), &parameters, &after, ";");
    }

    fn value_bounds(&self, value: &ValueDeclaration) -> String {
        let bases = value.bases.iter().filter(|base| self.has_operations(**base));
        let traits: Vec<String> = bases.chain(&value.supports).map(|base| self.path_to_operations(*base)).collect();
        if traits.is_empty() { "Send + Sync + 'static".to_owned() } else { traits.join(" + ") }
    }

    fn value_operations(&mut self, id: DefinitionId, value: &ValueDeclaration, out: &mut CodeWriter) {
        let (state, operations) = (self.name(id), self.names.operations_trait[&id].clone());
        let holder = self.names.skeleton[&id].clone();
        let implementation = self.runtime("ValueImplementation");
        let bounds = self.value_bounds(value);
        let custom = value.flavor == ValueFlavor::Custom;
        out.gap();
        out.line(&format!("/// The operations of a [`{}`].", state.trim_start_matches("r#")));
        self.attributes(LintedItem::Calls, out);
        out.open(&format!("pub trait {operations}: {bounds} {{"));
        for call in self.calls(&value.members) {
            self.value_operation(id, &call, out);
        }
        out.gap();
        out.line("/// Returns the current state, which the ORB sends.");
        out.line(&format!("fn state(&self) -> {state};"));
        if custom {
            let (value_type, encoder, error) =
                (self.runtime("ValueType"), self.runtime("Encoder"), self.runtime("CdrError"));
            out.gap();
            out.line("/// Writes the custom form of the value, which its factory reads. The default is the state.");
            let parameters = ["&self".to_owned(), format!("e: &mut {encoder}<'_>")];
            out.signature("fn marshal(", &parameters, &format!("Result<(), {error}>"), " {");
            out.open_again();
            out.line(&format!("{value_type}::encode_state(&{operations}::state(self), e)"));
            out.close("}");
        }
        out.gap();
        out.line("/// Wraps the object in an implementation of a value.");
        out.line(&format!("fn implementation(this: Self) -> {implementation}<{state}>"));
        out.open("where");
        out.line("Self: Sized,");
        out.close("{");
        out.open_again();
        out.line(&format!("{operations}::implementation_of(std::sync::Arc::new(this))"));
        out.close("}");
        out.gap();
        out.line("/// Wraps a shared object in an implementation of a value.");
        out.line(&format!("fn implementation_of(this: std::sync::Arc<Self>) -> {implementation}<{state}>"));
        out.open("where");
        out.line("Self: Sized,");
        out.close("{");
        out.open_again();
        out.line(&format!("{implementation}::new({holder}(this))"));
        out.close("}");
        out.close("}");
        let ancestors = self.ancestors(id).into_iter().filter(|ancestor| self.has_operations(*ancestor));
        let bases: Vec<String> = ancestors.map(|ancestor| self.path_to_operations(ancestor)).collect();
        let custom = if custom { "custom " } else { "" };
        out.gap();
        out.open("corelane::value_implementation! {");
        out.line(&format!("{custom}{holder} of {state} runs {operations} [{}]", bases.join(", ")));
        out.close("}");
    }

    fn value_factory(&mut self, id: DefinitionId, value: &ValueDeclaration, out: &mut CodeWriter) {
        if value.factories.is_empty() {
            return;
        }
        let (name, handle) = (self.names.factory[&id].clone(), self.names.reference[&id].clone());
        out.gap();
        out.line(&format!("/// A factory of [`{}`] values.", self.name(id).trim_start_matches("r#")));
        self.attributes(LintedItem::Calls, out);
        out.open(&format!("pub trait {name}: Send + Sync + 'static {{"));
        let mut taken = HashSet::new();
        for factory in &value.factories {
            let call = self.factory_call(id, factory, &mut taken);
            let (before, parameters, after) = self.signature(id, &call);
            let after = after.replacen("Result<()", &format!("Result<{handle}"), 1);
            out.signature(&format!("fn {before}"), &parameters, &after, ";");
        }
        out.close("}");
    }

    pub(super) fn factory_call(
        &self,
        id: DefinitionId,
        factory: &OperationDeclaration,
        taken: &mut HashSet<String>,
    ) -> Call {
        let wire = self.text(factory.name).to_owned();
        let mut parameters = HashSet::new();
        let named = factory.parameters.iter().map(|parameter| {
            let name = free(escaped(snake(self.text(parameter.name))), &mut parameters);
            (parameter.clone(), name)
        });
        Call {
            of: id,
            method: free(escaped(snake(&wire)), taken),
            wire,
            oneway: false,
            result: None,
            parameters: named.collect(),
            raises: factory.raises.clone(),
            sets: false,
            wcet_microseconds: None,
            context: Vec::new(),
        }
    }

    pub(super) fn value_box(&mut self, id: DefinitionId, of: &Type, out: &mut CodeWriter) {
        let name = self.name(id);
        let ty = self.owned(of);
        self.document(id, out);
        self.attributes(LintedItem::Type, out);
        self.derive(id, &[], &[], out);
        out.line(&format!("pub struct {name}(pub {ty});"));
        self.handle(id, &name, out);
        let body = self.encode(of, &EncodedExpression::Place("self.0".to_owned()), "e");
        self.open_state(&name, &body, false, out);
        match self.decode(of, "d") {
            DecodingCode::Expression(value) => match value.strip_suffix('?') {
                Some(fallible) if out.has_room(fallible.len() + 10) => out.line(&format!("{fallible}.map(Self)")),
                _ => out.line(&format!("Ok(Self({value}))")),
            },
            DecodingCode::Block(lines, value) => {
                out.lines(&lines);
                out.line(&format!("Ok(Self({value}))"));
            }
        }
        out.close("}");
        out.close("}");
        out.gap();
        out.line(&format!("corelane::value_type! {{ {name} = [{:?}] }}", self.repository_id(id)));
    }

    fn value_of(&self, id: DefinitionId) -> Option<&ValueDeclaration> {
        match &self.model().get(id).kind {
            DefinitionKind::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the base whose state is the first part of this type's state.
    pub(super) fn base_with_state(&self, value: &ValueDeclaration) -> Option<DefinitionId> {
        let first = value.bases.first().copied()?;
        self.value_of(first).is_some_and(|base| base.flavor != ValueFlavor::Abstract).then_some(first)
    }

    fn ancestors(&self, id: DefinitionId) -> Vec<DefinitionId> {
        let mut all = self.model().all_bases(id);
        for base in std::iter::once(id).chain(all.clone()) {
            for supported in self.value_of(base).map_or(&[][..], |value| &value.supports) {
                all.push(*supported);
                all.extend(self.model().all_bases(*supported));
            }
        }
        let mut seen = HashSet::new();
        all.retain(|id| seen.insert(*id));
        all
    }

    pub(super) fn has_operations(&self, id: DefinitionId) -> bool {
        let Some(value) = self.value_of(id) else {
            return matches!(self.model().get(id).kind, DefinitionKind::Interface(_));
        };
        let declares = |id: &DefinitionId| {
            matches!(self.model().get(*id).kind, DefinitionKind::Operation(_) | DefinitionKind::Attribute(_))
        };
        value.flavor != ValueFlavor::Plain
            || !value.supports.is_empty()
            || value.members.iter().any(declares)
            || value.bases.iter().any(|base| self.has_operations(*base))
    }

    fn path_to_operations(&self, id: DefinitionId) -> String {
        let mut path = self.module_path(id);
        path.push(match self.names.operations_trait.get(&id) {
            Some(operations) => operations.clone(),
            None => self.name(id),
        });
        self.relative(&path)
    }
}
