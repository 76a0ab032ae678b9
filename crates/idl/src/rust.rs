//! The Rust back end: generates one Rust file from a model, as docs/rust-mapping.md defines.

mod code;
mod data;
mod describe;
mod docs;
mod extended;
mod external;
mod hash;
mod interface;
mod names;
mod path;
mod result_memory;
mod types;
mod value;
mod writer;

use crate::compile::Compilation;
use crate::diagnostic::Diagnostic;
use crate::model::{DefinitionId, DefinitionKind, Member, Model, Type};
use crate::source::{FileId, Span};
use crate::symbol::Symbol;
use names::RustNames;
use std::collections::{BTreeSet, HashMap, HashSet};
use writer::CodeWriter;

impl Compilation {
    /// Generates the Rust code of the model. Declarations without a Rust mapping become errors in
    /// [`diagnostics`](Self::diagnostics).
    #[must_use]
    pub fn to_rust(&mut self) -> String {
        generate(self)
    }
}

fn generate(compilation: &mut Compilation) -> String {
    let names = RustNames::of(&compilation.model, &compilation.symbols);
    let mut generator = Generator {
        compilation,
        names,
        facts: HashMap::new(),
        unsupported: HashMap::new(),
        external: external::External::default(),
        errors: HashMap::new(),
        error_list: HashMap::new(),
        error_aliases: HashMap::new(),
        path: Vec::new(),
        scope: None,
        imports: BTreeSet::new(),
        written: 0,
        too_long: None,
    };
    generator.find_facts();
    let mut refused = generator.find_external();
    refused.extend(generator.find_unsupported());
    if !refused.is_empty() {
        for diagnostic in refused {
            compilation.diagnostics.push(diagnostic);
        }
        return String::new();
    }
    let code = generator.file();
    if let Some(span) = generator.too_long {
        let message = format!("the generated Rust code is larger than {} octets", compilation.longest_output);
        compilation.diagnostics.push(Diagnostic::error(span, message).label("the limit is exceeded here"));
        return String::new();
    }
    code
}

struct Generator<'c> {
    compilation: &'c Compilation,
    names: RustNames,
    facts: HashMap<DefinitionId, types::TypeFacts>,
    unsupported: HashMap<DefinitionId, &'static str>,
    /// Definitions whose Rust code another crate or module already has.
    external: external::External,
    errors: HashMap<(DefinitionId, Vec<DefinitionId>), String>,
    error_list: HashMap<DefinitionId, Vec<(String, Vec<DefinitionId>)>>,
    error_aliases: HashMap<DefinitionId, Vec<(String, String)>>,
    path: Vec<String>,
    scope: Option<DefinitionId>,
    imports: BTreeSet<(&'static str, &'static str)>,
    written: usize,
    too_long: Option<Span>,
}

/// Public names of `corelane`; `corelane::mapping` has the runtime's other names.
const PUBLIC: &[&str] = &[
    "Any",
    "AnyValueRef",
    "Context",
    "Fixed",
    "LocalRef",
    "LongDouble",
    "Native",
    "ObjectOrValue",
    "ObjectRef",
    "Octets",
    "Reference",
    "ResultMemory",
    "Servant",
    "SystemException",
    "TypeCode",
    "UserException",
    "ValueImplementation",
    "ValueRef",
];

const ALLOWED: &str = "#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]";

#[derive(Clone, Copy)]
enum LintedItem {
    Type,
    Enum,
    Constant,
    Calls,
    Module,
}

impl LintedItem {
    fn allowed(self) -> BTreeSet<&'static str> {
        let own: &[&str] = match self {
            Self::Type => &["pedantic", "type_complexity", "upper_case_acronyms"],
            Self::Enum => {
                &["enum_variant_names", "large_enum_variant", "pedantic", "type_complexity", "upper_case_acronyms"]
            }
            Self::Constant => &["approx_constant", "pedantic"],
            Self::Calls => &[
                "disallowed_names",
                "len_without_is_empty",
                "new_ret_no_self",
                "pedantic",
                "result_large_err",
                "should_implement_trait",
                "too_many_arguments",
                "type_complexity",
                "upper_case_acronyms",
                "wrong_self_convention",
            ],
            Self::Module => {
                let items = [Self::Type, Self::Enum, Self::Constant, Self::Calls].into_iter().flat_map(Self::allowed);
                return items.chain(["module_inception"]).collect();
            }
        };
        own.iter().copied().collect()
    }
}

impl<'c> Generator<'c> {
    fn model(&self) -> &'c Model {
        &self.compilation.model
    }

    fn text(&self, symbol: Symbol) -> &'c str {
        self.compilation.symbols.text(symbol)
    }

    fn name(&self, id: DefinitionId) -> String {
        self.names.item.get(&id).cloned().unwrap_or_default()
    }

    fn repository_id(&self, id: DefinitionId) -> String {
        self.model().repository_id(id, &self.compilation.symbols)
    }

    fn is_built_in(&self, id: DefinitionId) -> bool {
        self.model().get(id).span == Span::default()
    }

    fn find_unsupported(&mut self) -> Vec<Diagnostic> {
        let all = || self.model().definition_ids().filter(|id| !self.is_built_in(*id));
        let direct: Vec<DefinitionId> = all().filter(|id| self.unsupported_reason(*id).is_some()).collect();
        for id in self.model().definition_ids() {
            // A native type that the ORB defines without a declaration, except TypeCode, has no
            // mapping.
            let built_in = self.is_built_in(id) && !self.is_type_code(&Type::Named(id));
            if built_in && matches!(self.model().get(id).kind, DefinitionKind::Native) {
                self.unsupported.insert(id, "a native type");
            }
        }
        loop {
            let known = self.unsupported.len();
            for id in self.model().definition_ids() {
                if !self.unsupported.contains_key(&id)
                    && let Some((what, _)) = self.unsupported_reason(id)
                {
                    self.unsupported.insert(id, what);
                }
            }
            if self.unsupported.len() == known {
                break;
            }
        }
        let is_main = |id: &DefinitionId| {
            let span = self.model().get(*id).span;
            !self.is_built_in(*id) && self.compilation.sources.file_of(span) == FileId(0)
        };
        let mut refused: Vec<DefinitionId> = direct.into_iter().filter(is_main).collect();
        if refused.is_empty() {
            refused =
                self.model().definition_ids().filter(|id| self.unsupported.contains_key(id)).filter(is_main).collect();
        }
        let reasons = refused.into_iter().filter_map(|id| self.unsupported_reason(id));
        reasons
            .map(|(what, span)| {
                let diagnostic = Diagnostic::error(span, format!("{what} has no Rust mapping yet")).label("used here");
                diagnostic.note("a later version of this compiler will have one; `--check` accepts it")
            })
            .collect()
    }

    fn unsupported_reason(&self, id: DefinitionId) -> Option<(&'static str, Span)> {
        let definition = self.model().get(id);
        let here = definition.span;
        let at = |what: Option<&'static str>, span| what.map(|what| (what, span));
        let of = |ty: &Type| at(self.unsupported_type(ty), here);
        let member = |member: &Member| at(self.unsupported_type(&member.ty), member.span);
        let raised = |raises: &[DefinitionId]| at(raises.iter().find_map(|id| self.unsupported.get(id).copied()), here);
        if self.is_type_code(&Type::Named(id)) {
            return None;
        }
        let used = |ids: &[DefinitionId]| at(ids.iter().find_map(|id| self.unsupported.get(id).copied()), here);
        match &definition.kind {
            DefinitionKind::Struct(structure) | DefinitionKind::Exception(structure) => {
                self.model().all_members(structure).iter().find_map(member)
            }
            DefinitionKind::Value(value) => (value.state.iter().find_map(|(state, _)| member(state)))
                .or_else(|| used(&value.bases))
                .or_else(|| used(&value.supports))
                .or_else(|| used(&value.members))
                .or_else(|| {
                    value.factories.iter().find_map(|factory| factory.parameters.iter().find_map(|one| of(&one.ty)))
                }),
            DefinitionKind::Union(union) => {
                of(&union.discriminator).or_else(|| union.arms.iter().find_map(|arm| member(&arm.member)))
            }
            DefinitionKind::Typedef(ty) | DefinitionKind::Constant(ty, _) | DefinitionKind::ValueBox(ty) => of(ty),
            DefinitionKind::Operation(operation) => operation
                .result
                .as_ref()
                .and_then(of)
                .or_else(|| operation.parameters.iter().find_map(|parameter| of(&parameter.ty)))
                .or_else(|| raised(&operation.raises)),
            DefinitionKind::Attribute(attribute) => {
                of(&attribute.ty).or_else(|| raised(&attribute.get_raises)).or_else(|| raised(&attribute.set_raises))
            }
            DefinitionKind::Interface(interface) => {
                let parts = interface.bases.iter().chain(&interface.members);
                at(parts.filter_map(|id| self.unsupported.get(id).copied()).next(), here)
            }
            _ => None,
        }
    }

    fn is_known(&self, id: DefinitionId) -> bool {
        !self.is_built_in(id) && !self.unsupported.contains_key(&id)
    }

    fn is_written(&self, id: DefinitionId) -> bool {
        self.is_known(id) && !self.external.has(id)
    }

    fn module_path(&self, id: DefinitionId) -> Vec<String> {
        let path = match self.model().get(id).parent {
            Some(parent) => self.inner_path(parent),
            None => Vec::new(),
        };
        self.external.complete(id, path)
    }

    fn inner_path(&self, id: DefinitionId) -> Vec<String> {
        if let Some(root) = self.external.module(id) {
            return vec![root.to_owned()];
        }
        let mut path = self.module_path(id);
        path.extend(match &self.model().get(id).kind {
            DefinitionKind::Module(_) => self.names.item.get(&id).cloned(),
            _ => self.names.inner.get(&id).cloned(),
        });
        path
    }

    fn relative(&self, path: &[String]) -> String {
        if path.first().is_some_and(|first| self.external.is_root(first)) {
            return path.join("::");
        }
        let shared = self.path.iter().zip(path).take_while(|(here, there)| here == there).count();
        let shared = shared.min(path.len() - 1);
        let up = std::iter::repeat_n("super", self.path.len() - shared);
        up.chain(path[shared..].iter().map(String::as_str)).collect::<Vec<_>>().join("::")
    }

    /// Returns the path of a type; for an interface or a value type, of its reference type.
    fn path_to(&self, id: DefinitionId) -> String {
        let mut path = self.module_path(id);
        path.push(match self.names.reference.get(&id) {
            Some(reference) => reference.clone(),
            None => self.name(id),
        });
        self.relative(&path)
    }

    fn path_to_trait(&self, id: DefinitionId) -> String {
        let mut path = self.module_path(id);
        path.push(self.name(id));
        self.relative(&path)
    }

    fn path_to_skeleton(&self, id: DefinitionId) -> String {
        let mut path = self.module_path(id);
        path.extend(self.names.skeleton.get(&id).cloned());
        self.relative(&path)
    }

    fn runtime(&mut self, name: &'static str) -> String {
        let from = if PUBLIC.contains(&name) { "corelane" } else { "corelane::mapping" };
        let taken = self.names.taken.get(&self.scope).is_some_and(|taken| taken.contains(name));
        let taken = taken
            || self
                .scope
                .and_then(|scope| self.error_list.get(&scope))
                .is_some_and(|errors| errors.iter().any(|(error, _)| error == name));
        if self.path.is_empty() || taken {
            return format!("{from}::{name}");
        }
        self.imports.insert((from, name));
        name.to_owned()
    }

    fn file(&mut self) -> String {
        let mut out = CodeWriter::at(0);
        let main = &self.compilation.sources.files()[0].path;
        let file_name = main.file_name().unwrap_or_default().to_string_lossy();
        out.line(&format!("// Generated from {file_name} by Corelane's IDL compiler. Do not edit."));
        out.gap();
        for id in self.model().definition_ids() {
            if !self.is_known(id) {
                continue;
            }
            match &self.model().get(id).kind {
                DefinitionKind::Interface(interface) => self.plan_errors(id, self.calls(&interface.members)),
                DefinitionKind::Value(value) => {
                    let mut calls = self.calls(&value.members);
                    let factories = value.factories.iter();
                    calls.extend(factories.map(|factory| self.factory_call(id, factory, &mut HashSet::new())));
                    self.plan_errors(id, calls);
                }
                _ => {}
            }
        }
        self.members(&self.model().roots, &mut out);
        out.finish()
    }

    fn members(&mut self, members: &[DefinitionId], out: &mut CodeWriter) {
        let mut after_single = false;
        for id in members {
            let kind = &self.model().get(*id).kind;
            if let DefinitionKind::Module(inner) = kind {
                if self.has_something(*id) {
                    out.gap();
                    let name = self.name(*id);
                    self.document(*id, out);
                    self.module(&name, *id, inner, out);
                }
                continue;
            }
            if !self.is_written(*id) {
                continue;
            }
            if self.written > self.compilation.longest_output {
                self.too_long.get_or_insert(self.model().get(*id).span);
                return;
            }
            let (written, before) = (self.written, out.len());
            let single = matches!(kind, DefinitionKind::Typedef(_) | DefinitionKind::Constant(..));
            let documented = !docs::of(self.compilation, self.model().get(*id).first_token).is_empty();
            if !(single && after_single) || documented {
                out.gap();
            }
            after_single = single;
            match kind {
                DefinitionKind::Struct(structure) => self.structure(*id, structure, false, out),
                DefinitionKind::Exception(structure) => self.structure(*id, structure, true, out),
                DefinitionKind::Union(union) => self.union(*id, union, out),
                DefinitionKind::Enum(enumerators) => self.enumeration(*id, enumerators, out),
                DefinitionKind::Typedef(ty) => self.typedef(*id, ty, out),
                DefinitionKind::Constant(ty, value) => self.constant(*id, ty, value, out),
                DefinitionKind::Interface(interface) => self.interface(*id, interface, out),
                DefinitionKind::Value(value) => self.value(*id, value, out),
                DefinitionKind::ValueBox(of) => self.value_box(*id, of, out),
                DefinitionKind::Native => self.native(*id, out),
                DefinitionKind::Bitmask(mask) => self.bitmask(*id, mask, out),
                DefinitionKind::Bitset(set) => self.bitset(*id, set, out),
                _ => {}
            }
            self.describe(*id, out);
            self.inner_module(*id, kind, out);
            self.written = written + (out.len() - before);
        }
        if self.written > self.compilation.longest_output {
            self.too_long.get_or_insert(members.last().map_or(Span::default(), |last| self.model().get(*last).span));
        }
    }

    fn has_something(&self, id: DefinitionId) -> bool {
        match &self.model().get(id).kind {
            DefinitionKind::Module(members) => members.iter().any(|member| self.has_something(*member)),
            _ => self.is_written(id),
        }
    }

    fn inner_module(&mut self, id: DefinitionId, kind: &DefinitionKind, out: &mut CodeWriter) {
        let inner = match kind {
            DefinitionKind::Interface(interface) => &interface.members,
            DefinitionKind::Value(value) => &value.members,
            DefinitionKind::Struct(structure) | DefinitionKind::Exception(structure) => &structure.inner,
            DefinitionKind::Union(union) => &union.inner,
            _ => return,
        };
        let declares = |member: &&DefinitionId| {
            !matches!(self.model().get(**member).kind, DefinitionKind::Operation(_) | DefinitionKind::Attribute(_))
        };
        let inner: Vec<DefinitionId> = inner.iter().filter(declares).copied().collect();
        if inner.is_empty() && !self.error_list.contains_key(&id) {
            return;
        }
        let Some(name) = self.names.inner.get(&id).cloned() else { return };
        out.gap();
        let of = self.text(self.model().get(id).name);
        out.line(&format!("/// Declarations in the scope of `{of}`."));
        self.module(&name, id, &inner, out);
    }

    fn module(&mut self, name: &str, id: DefinitionId, members: &[DefinitionId], out: &mut CodeWriter) {
        self.attributes(LintedItem::Module, out);
        let imports = std::mem::take(&mut self.imports);
        let scope = self.scope.replace(id);
        self.path.push(name.to_owned());
        let mut body = CodeWriter::at(self.path.len());
        self.members(members, &mut body);
        for (error, raises) in self.error_list.get(&id).cloned().unwrap_or_default() {
            self.error(&error, &raises, &mut body);
        }
        for (alias, error) in self.error_aliases.get(&id).into_iter().flatten() {
            Self::error_alias(alias, error, &mut body);
        }
        self.path.pop();
        self.scope = scope;
        let used = std::mem::replace(&mut self.imports, imports);
        out.open(&format!("pub mod {name} {{"));
        let names = |from: &str| -> Vec<&str> {
            used.iter().filter(|(source, _)| *source == from).map(|(_, name)| *name).collect()
        };
        let (own, public) = (names("corelane::mapping"), names("corelane"));
        if let [one] = public.as_slice() {
            out.line(&format!("use corelane::{one};"));
        }
        match own.as_slice() {
            [] => {}
            [one] => out.line(&format!("use corelane::mapping::{one};")),
            _ => out.imports("use corelane::mapping::{", &own),
        }
        if public.len() > 1 {
            out.imports("use corelane::{", &public);
        }
        if !used.is_empty() && !body.is_empty() {
            out.line("");
        }
        out.append(&body.finish());
        out.close("}");
    }

    fn document(&self, id: DefinitionId, out: &mut CodeWriter) {
        self.document_token(self.model().get(id).first_token, out);
    }

    fn document_member(&self, member: &Member, out: &mut CodeWriter) {
        self.document_token(member.first_token, out);
    }

    fn document_token(&self, first_token: usize, out: &mut CodeWriter) {
        for line in docs::of(self.compilation, first_token) {
            out.line(if line.is_empty() { "///".to_owned() } else { format!("/// {line}") }.as_str());
        }
    }

    /// Writes the lint attributes of an item outside modules. Inside a module the method writes
    /// nothing, because the module has the attributes for all its items.
    fn attributes(&self, item: LintedItem, out: &mut CodeWriter) {
        const WIDTH: usize = 70;
        if !self.path.is_empty() {
            return;
        }
        out.line(ALLOWED);
        let mut line = String::new();
        for lint in item.allowed() {
            if !line.is_empty() && line.len() + ", clippy::".len() + lint.len() > WIDTH {
                out.line(&format!("#[allow({})]", std::mem::take(&mut line)));
            }
            line = format!("{line}{}clippy::{lint}", if line.is_empty() { "" } else { ", " });
        }
        out.line(&format!("#[allow({line})]"));
    }
}
