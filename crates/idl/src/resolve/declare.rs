//! Resolution of modules, structures, unions, enumerations, typedefs, constants and exceptions.

use super::standard::AnnotatedItem;
use super::{DeclarationResolver, DeclarationSite, ScopeItem};
use crate::ast::{self, BasicType, CaseLabel, Declaration, DeclarationKind, Declarator, Expression, ForwardKind, Name};
use crate::diagnostic::Diagnostic;
use crate::model::{Annotation, Arm, ConstantValue, DefinitionId, DefinitionKind, Member, Struct, Type, Union};
use crate::source::Span;
use crate::symbol::{Symbol, SymbolMap};
use std::collections::{HashMap, HashSet};

impl DeclarationResolver<'_> {
    pub(super) fn declaration(&mut self, declaration: &Declaration, at: DeclarationSite) {
        use DeclarationKind as D;
        self.check_annotations(&declaration.annotations, AnnotatedItem::of(&declaration.kind), at);
        let first = self.model.definitions.len();
        match &declaration.kind {
            D::Module(name, body, _) => self.module(*name, body, declaration, at),
            D::Interface(interface) => self.interface(interface, declaration, at),
            D::InterfaceForward(flavor, name) => self.interface_forward(*flavor, *name, declaration, at),
            D::Value(value) => self.value(value, declaration, at),
            D::ValueForward(flavor, name) => self.value_forward(*flavor, *name, declaration, at),
            D::ValueBox(name, ty) => self.value_box(*name, ty, declaration, at),
            D::Struct(structure) => {
                self.structure(structure, declaration, at, false);
            }
            D::Exception(structure) => {
                self.structure(structure, declaration, at, true);
            }
            D::Forward(name, kind) => self.forward(*name, *kind, declaration, at),
            D::Union(union) => {
                self.union(union, declaration, at);
            }
            D::Enum(enumeration) => {
                self.enumeration(enumeration, declaration, at);
            }
            D::Typedef(ty, declarators) => self.typedef(ty, declarators, declaration, at),
            D::Constant(ty, name, value) => self.constant(ty, *name, value, declaration, at),
            D::Native(name) => self.simple(*name, DefinitionKind::Native, declaration, at),
            D::AnnotationType(annotation) => self.annotation_type(annotation, declaration, at),
            D::Bitmask(name, flags) => self.bitmask(*name, flags, declaration, at),
            D::Bitset(bitset) => self.bitset(bitset, declaration, at),
            D::Operation(operation) => self.operation(operation, declaration, at),
            D::Attribute(attribute) => self.attribute(attribute, declaration, at),
            D::State(state) => self.state(state, declaration, at),
            D::Factory(name, parameters, raises) => self.factory(*name, parameters, raises, at),
            D::TypeId(name, id) => self.type_id(name, id, at),
            D::TypePrefix(name, prefix) => self.type_prefix(name, prefix, at),
            D::Import(span) => self.import(*span),
            D::EnterFile => {
                self.prefixes.push(std::mem::take(&mut self.prefix));
                self.files.push(self.file);
                self.last_file += 1;
                self.file = self.last_file;
            }
            D::LeaveFile => {
                self.prefix = self.prefixes.pop().unwrap_or_default();
                self.file = self.files.pop().unwrap_or_default();
            }
            D::Pragma(pragma) => self.pragma(pragma.span, &pragma.tokens, at),
        }
        if let Some(definition) = self.model.definitions.get_mut(first) {
            definition.annotations = Annotation::list(&declaration.annotations);
        }
    }

    fn check_unlike_built_in(&mut self, name: Name, built_in: Symbol) {
        if name.symbol == built_in {
            return;
        }
        let (text, known) = (self.text(name.symbol), self.text(built_in));
        let message = format!("`{text}` and `{known}`, the module of the ORB itself, differ only in case");
        let diagnostic = Diagnostic::error(name.span, message).label("declared here");
        let diagnostic = diagnostic.note("not every language distinguishes them, so IDL treats them as one name");
        self.report(diagnostic.help("choose another name"));
    }

    fn simple(&mut self, name: Name, kind: DefinitionKind, declaration: &Declaration, at: DeclarationSite) {
        let id = self.add(at, name, declaration.first_token, kind);
        self.declare(at.scope, name, ScopeItem::Definition(id));
        self.list(at, id);
    }

    fn module(&mut self, name: Name, body: &[Declaration], declaration: &Declaration, at: DeclarationSite) {
        let known = self.entry(at.scope, name.symbol);
        let reopened = match known.map(|entry| entry.what) {
            Some(ScopeItem::Definition(id)) if matches!(self.model.get(id).kind, DefinitionKind::Module(_)) => Some(id),
            _ => None,
        };
        let id = match (reopened, known) {
            (Some(id), Some(entry)) => {
                match entry.span == Span::default() {
                    true => self.check_unlike_built_in(name, entry.symbol),
                    false => self.check_spelling(name, entry.symbol, id),
                }
                self.check_same_prefix(id, name, "opened");
                if let Some(scope) = self.scope_of(id) {
                    let scope = &mut self.scopes[scope.0];
                    for name in std::mem::take(&mut scope.introduced) {
                        scope.names.remove(&name);
                    }
                }
                id
            }
            _ => {
                let id = self.add(at, name, declaration.first_token, DefinitionKind::Module(Vec::new()));
                self.declare(at.scope, name, ScopeItem::Definition(id));
                self.list(at, id);
                id
            }
        };
        let scope = match self.scope_of(id) {
            Some(scope) => scope,
            None => self.open_scope(at.scope, Some(id)),
        };
        self.prefixes.push(self.prefix.clone());
        let depth = self.prefixes.len();
        for declaration in body {
            self.declaration(declaration, DeclarationSite { scope, parent: Some(id) });
        }
        self.prefixes.truncate(depth);
        self.prefix = self.prefixes.pop().unwrap_or_default();
    }

    fn typedef(&mut self, ty: &ast::Type, declarators: &[Declarator], declaration: &Declaration, at: DeclarationSite) {
        let of = self.ty(ty, at);
        for declarator in declarators {
            let declared = self.declared(&of, declarator, at);
            let local = self.is_local(&declared);
            if !declarator.dimensions.is_empty() {
                self.check_complete(&declared, ty.span, None);
            }
            let elements = self.elements(&declared);
            let last_alias = match &declared {
                Type::Named(of) if matches!(self.model.get(*of).kind, DefinitionKind::Typedef(_)) => {
                    self.model.get(*of).last_alias.or(Some(*of))
                }
                _ => None,
            };
            let id = self.add(at, declarator.name, declaration.first_token, DefinitionKind::Typedef(declared));
            let definition = self.model.get_mut(id);
            (definition.is_local, definition.last_alias, definition.elements) = (local, last_alias, elements);
            self.declare(at.scope, declarator.name, ScopeItem::Definition(id));
            self.list(at, id);
        }
    }

    fn constant(
        &mut self,
        ty: &ast::Type,
        name: Name,
        value: &Expression,
        declaration: &Declaration,
        at: DeclarationSite,
    ) {
        let written = self.ty(ty, at);
        let value = self.evaluate_as(value, &written, ty.span, at).unwrap_or(ConstantValue::Faulty);
        let id = self.add(at, name, declaration.first_token, DefinitionKind::Constant(written, value));
        self.declare(at.scope, name, ScopeItem::Definition(id));
        self.list(at, id);
    }

    fn forward(&mut self, name: Name, kind: ForwardKind, declaration: &Declaration, at: DeclarationSite) {
        if let Some(entry) = self.entry(at.scope, name.symbol)
            && let ScopeItem::Definition(id) = entry.what
            && entry.symbol == name.symbol
        {
            let same = match &self.model.get(id).kind {
                DefinitionKind::Struct(_) => kind == ForwardKind::Struct,
                DefinitionKind::Union(_) => kind == ForwardKind::Union,
                _ => false,
            };
            if same {
                return;
            }
        }
        let empty = match kind {
            ForwardKind::Struct => {
                DefinitionKind::Struct(Struct { is_defined: false, base: None, members: Vec::new(), inner: Vec::new() })
            }
            ForwardKind::Union => {
                let discriminator = Type::Faulty;
                DefinitionKind::Union(Union { is_defined: false, discriminator, arms: Vec::new(), inner: Vec::new() })
            }
        };
        let id = self.add(at, name, declaration.first_token, empty);
        self.declare(at.scope, name, ScopeItem::Definition(id));
        self.announced.push((id, name.span));
    }

    fn fulfil(
        &mut self,
        name: Name,
        first_token: usize,
        at: DeclarationSite,
        fits: impl Fn(&DefinitionKind) -> bool,
    ) -> Option<DefinitionId> {
        let entry = self.entry(at.scope, name.symbol)?;
        let ScopeItem::Definition(id) = entry.what else { return None };
        if entry.symbol != name.symbol || !fits(&self.model.get(id).kind) {
            return None;
        }
        self.check_same_prefix(id, name, "defined");
        let definition = self.model.get_mut(id);
        (definition.span, definition.first_token) = (name.span, first_token);
        Some(id)
    }

    pub(super) fn structure(
        &mut self,
        structure: &ast::Struct,
        declaration: &Declaration,
        at: DeclarationSite,
        exception: bool,
    ) -> Option<DefinitionId> {
        let announced =
            |kind: &DefinitionKind| !exception && matches!(kind, DefinitionKind::Struct(known) if !known.is_defined);
        let id = match self.fulfil(structure.name, declaration.first_token, at, announced) {
            Some(id) => id,
            None => {
                let empty = Struct { is_defined: false, base: None, members: Vec::new(), inner: Vec::new() };
                let kind = if exception { DefinitionKind::Exception(empty) } else { DefinitionKind::Struct(empty) };
                let id = self.add(at, structure.name, declaration.first_token, kind);
                self.declare(at.scope, structure.name, ScopeItem::Definition(id));
                id
            }
        };
        let inner = DeclarationSite { scope: self.open_scope(at.scope, Some(id)), parent: Some(id) };
        let base = structure.base.as_ref().and_then(|base| self.structure_base(base, at));
        if structure.members.is_empty() && !exception && base.is_none() && !self.extended && !structure.is_faulty {
            let message = format!("structure `{}` has no member", self.text(structure.name.symbol));
            self.report(
                Diagnostic::error(structure.name.span, message)
                    .help("give it one, or enable IDL 4 (`--idl-4`, `.idl_4()`)"),
            );
        }
        let mut members = Vec::new();
        let mut local = base.is_some_and(|base| self.model.get(base).is_local);
        for member in &structure.members {
            self.check_annotations(&member.annotations, AnnotatedItem::Other, at);
            let before = members.len();
            self.members(&member.ty, &member.declarators, member.first_token, inner, &mut members);
            for one in members.iter_mut().skip(before) {
                one.annotations.splice(0..0, Annotation::list(&member.annotations));
            }
        }
        for member in &members {
            local |= self.is_local(&member.ty);
            self.check_no_native(&member.ty, member.span);
        }
        if let Some(base) = base
            && let DefinitionKind::Struct(known) = &self.model.get(base).kind
        {
            let inherited: Vec<_> = self.model.all_members(known).iter().map(|one| (one.name, one.span)).collect();
            self.check_members_differ(&inherited, members.iter().map(|one| (one.name, one.span)));
        }
        let inherited = base.map_or(0, |base| self.model.get(base).elements);
        self.set_elements(id, members.iter().fold(inherited, |all, one| all.saturating_add(self.elements(&one.ty))));
        let definition = self.model.get_mut(id);
        definition.is_local = local;
        if let DefinitionKind::Struct(known) | DefinitionKind::Exception(known) = &mut definition.kind {
            (known.is_defined, known.base, known.members) = (true, base, members);
        }
        self.model.completed.push(id);
        self.list(at, id);
        Some(id)
    }

    fn structure_base(&mut self, name: &ast::ScopedName, at: DeclarationSite) -> Option<DefinitionId> {
        let id = self.look_up(name, at.scope, false).ok()?;
        match &self.model.get(id).kind {
            DefinitionKind::Struct(base) if base.is_defined => self.check_chain(id, name.span),
            _ => {
                let message = format!("{} is not a defined structure", self.described(id));
                self.report(Diagnostic::error(name.span, message));
                None
            }
        }
    }

    pub(super) fn check_chain(&mut self, base: DefinitionId, span: Span) -> Option<DefinitionId> {
        let next = |id: DefinitionId| match &self.model.get(id).kind {
            DefinitionKind::Struct(structure) => structure.base,
            DefinitionKind::Bitset(bitset) => bitset.base,
            _ => None,
        };
        if std::iter::successors(Some(base), |id| next(*id)).count() <= self.limits.max_bases {
            return Some(base);
        }
        let message = format!("this inherits from more than the limit of {}", self.limits.max_bases);
        self.report(Diagnostic::error(span, message));
        None
    }

    pub(super) fn members(
        &mut self,
        ty: &ast::Type,
        declarators: &[Declarator],
        first_token: usize,
        at: DeclarationSite,
        members: &mut Vec<Member>,
    ) {
        let of = self.ty(ty, at);
        for declarator in declarators {
            let declared = self.declared(&of, declarator, at);
            self.check_complete(&declared, ty.span, at.parent);
            self.declare(at.scope, declarator.name, ScopeItem::Member);
            members.push(Member {
                name: declarator.name.symbol,
                span: declarator.name.span,
                ty: declared,
                first_token,
                annotations: Annotation::list(&ty.annotations),
            });
        }
    }

    pub(super) fn check_members_differ(
        &mut self,
        inherited: &[(Symbol, Span)],
        own: impl Iterator<Item = (Symbol, Span)>,
    ) {
        let known: SymbolMap<Span> =
            inherited.iter().map(|(name, span)| (self.symbols.case_folded(*name), *span)).collect();
        for (name, span) in own {
            if let Some(first) = known.get(&self.symbols.case_folded(name)) {
                let message = format!("`{}` is a member of the base already", self.text(name));
                self.report(Diagnostic::error(span, message).label("declared again").related(*first, "inherited"));
            }
        }
    }

    pub(super) fn check_no_native(&mut self, ty: &Type, span: Span) {
        if let Some(native) = self.native_in(ty)
            && !self.is_of_the_orb(native)
        {
            let message = format!("{} cannot be a member", self.described(native));
            self.report(
                Diagnostic::error(span, message).note("native types are for the parameters of local interfaces"),
            );
        }
    }

    pub(super) fn union(
        &mut self,
        union: &ast::Union,
        declaration: &Declaration,
        at: DeclarationSite,
    ) -> Option<DefinitionId> {
        let announced = |kind: &DefinitionKind| matches!(kind, DefinitionKind::Union(known) if !known.is_defined);
        let id = match self.fulfil(union.name, declaration.first_token, at, announced) {
            Some(id) => id,
            None => {
                let discriminator = Type::Faulty;
                let kind = DefinitionKind::Union(Union {
                    is_defined: false,
                    discriminator,
                    arms: Vec::new(),
                    inner: Vec::new(),
                });
                let id = self.add(at, union.name, declaration.first_token, kind);
                self.declare(at.scope, union.name, ScopeItem::Definition(id));
                id
            }
        };
        let inner = DeclarationSite { scope: self.open_scope(at.scope, Some(id)), parent: Some(id) };
        let discriminator = self.discriminator(&union.discriminator, inner);
        let mut arms = Vec::new();
        let mut seen = UsedCaseLabels::default();
        for arm in &union.arms {
            let (mut labels, mut default) = (Vec::new(), false);
            for label in &arm.labels {
                match label {
                    CaseLabel::Default(span) => {
                        default = true;
                        self.check_default(*span, &mut seen);
                    }
                    CaseLabel::Case(value) if discriminator == Type::Faulty => drop(self.evaluate_freely(value, inner)),
                    CaseLabel::Case(value) => {
                        let span = union.discriminator.span;
                        if let Ok(evaluated) = self.evaluate_label(value, &discriminator, span, inner) {
                            self.check_label(&evaluated, value.span, &mut seen);
                            labels.push(evaluated);
                        }
                    }
                }
            }
            let mut members = Vec::new();
            self.members(&arm.ty, std::slice::from_ref(&arm.declarator), arm.first_token, inner, &mut members);
            for member in members {
                self.check_no_native(&member.ty, member.span);
                arms.push(Arm { labels: labels.clone(), is_default: default, member });
            }
        }
        self.check_default_reachable(&discriminator, &seen);
        let local = arms.iter().any(|arm| self.is_local(&arm.member.ty));
        self.set_elements(id, arms.iter().map(|arm| self.elements(&arm.member.ty)).max().unwrap_or(1));
        let definition = self.model.get_mut(id);
        definition.is_local = local;
        if let DefinitionKind::Union(known) = &mut definition.kind {
            (known.is_defined, known.discriminator, known.arms) = (true, discriminator, arms);
        }
        self.model.completed.push(id);
        self.list(at, id);
        Some(id)
    }

    fn discriminator(&mut self, written: &ast::Type, at: DeclarationSite) -> Type {
        use BasicType as B;
        let ty = self.ty(written, at);
        let fits = match self.model.unaliased(&ty) {
            Type::Basic(basic) => {
                !matches!(basic, B::Void | B::Float | B::Double | B::LongDouble | B::Any | B::Object | B::ValueBase)
            }
            Type::Named(id) => matches!(self.model.get(*id).kind, DefinitionKind::Enum(_)),
            Type::Faulty => return Type::Faulty,
            _ => false,
        };
        if !fits {
            let note = match self.extended {
                true => "it can be an integer type, `char`, `wchar`, `octet`, `boolean` or an enumeration",
                false => {
                    "it can be `short`, `long`, `long long`, each also `unsigned`, `char`, `wchar`, `boolean` or an enumeration"
                }
            };
            self.report(
                Diagnostic::error(written.span, "the discriminator of a union cannot have this type").note(note),
            );
            return Type::Faulty;
        }
        if let Type::Basic(kind @ (B::Octet | B::Int8 | B::UInt8)) = self.model.unaliased(&ty)
            && !self.extended
        {
            let message = format!("`{}` as a discriminator requires IDL 4", kind.text());
            self.report(
                Diagnostic::error(written.span, message)
                    .help("use `char` or `short`, or enable IDL 4 (`--idl-4`, `.idl_4()`)"),
            );
        }
        ty
    }

    fn check_default(&mut self, span: Span, seen: &mut UsedCaseLabels) {
        match seen.default {
            Some(first) => self.report(
                Diagnostic::error(span, "a union has at most one default")
                    .label("the second")
                    .related(first, "the first"),
            ),
            None => seen.default = Some(span),
        }
    }

    fn check_label(&mut self, value: &ConstantValue, span: Span, seen: &mut UsedCaseLabels) {
        let key = match value {
            ConstantValue::Integer(value) => Key::Integer(*value),
            ConstantValue::Boolean(value) => Key::Integer(i128::from(*value)),
            ConstantValue::Character(value) => Key::Integer(i128::from(u32::from(*value))),
            ConstantValue::Enumerator(id) => Key::Enumerator(*id),
            _ => return,
        };
        match seen.values.get(&key) {
            Some(first) => {
                let diagnostic = Diagnostic::error(span, "two labels have the same value").label("the second");
                self.report(diagnostic.related(*first, "the first"));
            }
            None => {
                seen.values.insert(key, span);
            }
        }
    }

    fn check_default_reachable(&mut self, discriminator: &Type, seen: &UsedCaseLabels) {
        let Some(span) = seen.default else { return };
        let all = match self.model.unaliased(discriminator) {
            Type::Basic(BasicType::Boolean) => 2,
            Type::Basic(BasicType::Octet | BasicType::Char | BasicType::Int8 | BasicType::UInt8) => 256,
            Type::Named(id) => match &self.model.get(*id).kind {
                DefinitionKind::Enum(enumerators) => enumerators.len(),
                _ => return,
            },
            _ => return,
        };
        if seen.values.len() == all {
            self.report(
                Diagnostic::error(span, "the default is never selected: every value has a label")
                    .help("leave out `default`"),
            );
        }
    }

    pub(super) fn enumeration(
        &mut self,
        enumeration: &ast::Enum,
        declaration: &Declaration,
        at: DeclarationSite,
    ) -> Option<DefinitionId> {
        let bits = self.bit_bound(&declaration.annotations, 32, 32, at);
        if enumeration.enumerators.len() as u64 > 1 << bits {
            let message = format!("{bits} bits are too few for {} enumerators", enumeration.enumerators.len());
            self.report(Diagnostic::error(enumeration.name.span, message));
        }
        let id = self.add(at, enumeration.name, declaration.first_token, DefinitionKind::Enum(Vec::new()));
        self.declare(at.scope, enumeration.name, ScopeItem::Definition(id));
        let mut enumerators = Vec::new();
        let mut seen = HashSet::new();
        for (number, (name, first_token, annotations)) in (0_u32..).zip(&enumeration.enumerators) {
            self.check_annotations(annotations, AnnotatedItem::Other, at);
            let enumerator = self.add(at, *name, *first_token, DefinitionKind::Enumerator(id, number));
            self.model.get_mut(enumerator).annotations = Annotation::list(annotations);
            self.declare(at.scope, *name, ScopeItem::Definition(enumerator));
            if seen.insert(name.symbol) {
                enumerators.push(enumerator);
            }
        }
        if let DefinitionKind::Enum(known) = &mut self.model.get_mut(id).kind {
            *known = enumerators;
        }
        self.model.completed.push(id);
        self.list(at, id);
        Some(id)
    }

    pub(super) fn check_announced(&mut self) {
        for (id, span) in std::mem::take(&mut self.announced) {
            let definition = self.model.get(id);
            let defined = match &definition.kind {
                DefinitionKind::Interface(interface) => interface.is_defined,
                DefinitionKind::Value(value) => value.is_defined,
                DefinitionKind::Struct(structure) => structure.is_defined,
                DefinitionKind::Union(union) => union.is_defined,
                _ => true,
            };
            // The ORB implements the objects and values that its IDL files only declare forward, so
            // they need no definition.
            let has_methods = matches!(definition.kind, DefinitionKind::Interface(_) | DefinitionKind::Value(_));
            if defined || (has_methods && self.is_of_the_orb(id)) {
                continue;
            }
            let message = format!("{} is announced and never defined", self.described(id));
            // Another file may reopen the module and define the interface, so the missing
            // definition is only a warning.
            let continued = matches!(definition.kind, DefinitionKind::Interface(_)) && definition.parent.is_some();
            let diagnostic = if continued {
                let diagnostic = Diagnostic::warning(span, message);
                diagnostic.note("references to it can be passed on, but its operations are unknown")
            } else {
                Diagnostic::error(span, message)
            };
            self.report(diagnostic.label("announced here").help("define it, or include the file that does"));
        }
    }
}

#[derive(Default)]
struct UsedCaseLabels {
    values: HashMap<Key, Span>,
    default: Option<Span>,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Integer(i128),
    Enumerator(DefinitionId),
}
