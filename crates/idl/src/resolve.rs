//! Conversion of the syntax tree into the [`Model`]: scopes, names, constants, repository ids and
//! rules of IDL.
//!
//! A refused type or constant becomes [`Faulty`](crate::model::Type::Faulty), which causes no
//! further messages.

mod annotation;
mod bits;
mod case;
mod constant;
mod decimal;
mod declare;
mod identity;
mod interface;
mod operation;
mod standard;
mod types;
mod unknown;
mod value;

use crate::ast::{BasicType, Declaration, Name, ScopedName};
use crate::diagnostic::{Diagnostic, Diagnostics, ReportedError};
use crate::limits::CompilerLimits;
use crate::model::{Definition, DefinitionId, DefinitionKind, Identity, Model, Type};
use crate::source::Span;
use crate::symbol::{Symbol, SymbolMap, Symbols};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(crate) fn resolve(
    declarations: &[Declaration],
    limits: &CompilerLimits,
    extended: bool,
    symbols: &mut Symbols,
    diagnostics: &mut Diagnostics,
) -> Model {
    let mut resolver = DeclarationResolver {
        model: Model::default(),
        scopes: vec![NameScope::default()],
        scope_of: Vec::new(),
        limits,
        extended,
        symbols,
        diagnostics,
        prefix: Arc::default(),
        file: u32::MAX,
        files: Vec::new(),
        last_file: 0,
        prefixes: Vec::new(),
        announced: Vec::new(),
        unknown: Vec::new(),
        read_again: HashSet::new(),
        defined_anything: false,
        ancestors: None,
        inherited: None,
        annotations: HashMap::new(),
    };
    resolver.define_built_in();
    let global = DeclarationSite { scope: ScopeId(0), parent: None };
    for declaration in declarations {
        if resolver.diagnostics.is_full() {
            break;
        }
        resolver.declaration(declaration, global);
    }
    resolver.explain_unknown();
    resolver.check_announced();
    resolver.check_case();
    resolver.model
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ScopeId(usize);

#[derive(Debug, Default)]
struct NameScope {
    outer: Option<ScopeId>,
    owner: Option<DefinitionId>,
    names: SymbolMap<ScopeEntry>,
    /// A cache of look-ups in the bases, by folded name; bases are complete before they are
    /// inherited, so an entry stays valid.
    inherited: SymbolMap<LookUpResult>,
    introduced: Vec<Symbol>,
}

#[derive(Clone, Copy, Debug)]
struct ScopeEntry {
    symbol: Symbol,
    span: Span,
    what: ScopeItem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScopeItem {
    Definition(DefinitionId),
    /// A member or parameter, which occupies the name but cannot be referred to.
    Member,
    /// A name that is declared outside this scope and used in it. The use fixes the meaning of the
    /// name in this scope (CORBA 3.0.3, section 3.20.2).
    Introduced(DefinitionId),
}

#[derive(Clone, Copy, Debug)]
struct DeclarationSite {
    scope: ScopeId,
    parent: Option<DefinitionId>,
}

type ResolveResult<T> = Result<T, ReportedError>;

/// An inherited member: an operation or attribute and its location, or a value type with the name
/// and the location of one of its state members.
type Inherited = (DefinitionId, Option<Symbol>, Span);

struct DeclarationResolver<'r> {
    model: Model,
    scopes: Vec<NameScope>,
    scope_of: Vec<Option<ScopeId>>,
    limits: &'r CompilerLimits,
    extended: bool,
    symbols: &'r mut Symbols,
    diagnostics: &'r mut Diagnostics,
    prefix: Arc<str>,
    file: u32,
    files: Vec<u32>,
    last_file: u32,
    prefixes: Vec<Arc<str>>,
    announced: Vec<(DefinitionId, Span)>,
    unknown: Vec<(ScopedName, ScopeId)>,
    read_again: HashSet<u32>,
    /// A cache: the interface or value type that was looked up last, and its bases and supported
    /// interfaces.
    ancestors: Option<(DefinitionId, Vec<DefinitionId>)>,
    /// A cache: the interface or value type that was checked last, and its inherited members by
    /// folded name.
    inherited: Option<(DefinitionId, SymbolMap<Inherited>)>,
    annotations: HashMap<DefinitionId, Vec<annotation::AnnotationParameter>>,
    defined_anything: bool,
}

impl DeclarationResolver<'_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    fn fail<T>(&mut self, diagnostic: Diagnostic) -> ResolveResult<T> {
        self.report(diagnostic);
        Err(ReportedError)
    }

    fn text(&self, symbol: Symbol) -> &str {
        self.symbols.text(symbol)
    }

    fn described(&self, id: DefinitionId) -> String {
        format!("{} `{}`", self.what_is(id), self.full_name(id))
    }

    fn full_name(&self, id: DefinitionId) -> String {
        let path = self.model.path(id);
        path.into_iter().map(|id| self.text(self.model.get(id).name)).collect::<Vec<_>>().join("::")
    }

    fn what_is(&self, id: DefinitionId) -> &'static str {
        match &self.model.get(id).kind {
            DefinitionKind::Module(_) => "module",
            DefinitionKind::Interface(_) => "interface",
            DefinitionKind::Value(_) => "value type",
            DefinitionKind::ValueBox(_) => "value box",
            DefinitionKind::Struct(_) => "structure",
            DefinitionKind::Exception(_) => "exception",
            DefinitionKind::Union(_) => "union",
            DefinitionKind::Enum(_) => "enumeration",
            DefinitionKind::Enumerator(..) => "enumerator",
            DefinitionKind::Typedef(_) => "type",
            DefinitionKind::Constant(..) => "constant",
            DefinitionKind::Native => "native type",
            DefinitionKind::Bitmask(_) => "bit mask",
            DefinitionKind::Bitset(_) => "bit set",
            DefinitionKind::Operation(_) => "operation",
            DefinitionKind::Attribute(_) => "attribute",
            DefinitionKind::Annotation => "annotation",
        }
    }

    fn add(&mut self, at: DeclarationSite, name: Name, first_token: usize, kind: DefinitionKind) -> DefinitionId {
        let id = DefinitionId(u32::try_from(self.model.definitions.len()).unwrap_or(u32::MAX));
        let identity = Identity { prefix: Arc::clone(&self.prefix), file: self.file, given: None };
        self.model.definitions.push(Definition {
            name: name.symbol,
            span: name.span,
            parent: at.parent,
            kind,
            first_token,
            is_local: false,
            last_alias: None,
            elements: 1,
            annotations: Vec::new(),
            identity,
        });
        self.defined_anything = true;
        id
    }

    fn list(&mut self, at: DeclarationSite, id: DefinitionId) {
        let Some(parent) = at.parent else { return self.model.roots.push(id) };
        match &mut self.model.get_mut(parent).kind {
            DefinitionKind::Module(members) => members.push(id),
            DefinitionKind::Interface(interface) => interface.members.push(id),
            DefinitionKind::Value(value) => value.members.push(id),
            DefinitionKind::Struct(structure) | DefinitionKind::Exception(structure) => structure.inner.push(id),
            DefinitionKind::Union(union) => union.inner.push(id),
            _ => {}
        }
    }

    fn open_scope(&mut self, outer: ScopeId, owner: Option<DefinitionId>) -> ScopeId {
        let id = ScopeId(self.scopes.len());
        self.scopes.push(NameScope { outer: Some(outer), owner, ..NameScope::default() });
        if let Some(owner) = owner {
            let at = owner.0 as usize;
            if self.scope_of.len() <= at {
                self.scope_of.resize(at + 1, None);
            }
            self.scope_of[at] = Some(id);
        }
        id
    }

    fn scope_of(&self, id: DefinitionId) -> Option<ScopeId> {
        self.scope_of.get(id.0 as usize).copied().flatten()
    }

    fn entry(&self, scope: ScopeId, name: Symbol) -> Option<ScopeEntry> {
        self.scopes[scope.0].names.get(&self.symbols.case_folded(name)).copied()
    }

    fn declare(&mut self, scope: ScopeId, name: Name, what: ScopeItem) {
        let folded = self.symbols.case_folded(name.symbol);
        if let Some(owner) = self.scopes[scope.0].owner
            && self.symbols.case_folded(self.model.get(owner).name) == folded
        {
            let (text, kind, span) = (self.text(name.symbol), self.what_is(owner), self.model.get(owner).span);
            let message = format!("`{text}` has the name of the {kind} it is declared in");
            let exact = self.model.get(owner).name == name.symbol;
            let data = matches!(
                self.model.get(owner).kind,
                DefinitionKind::Struct(_) | DefinitionKind::Exception(_) | DefinitionKind::Union(_)
            );
            // A member with the name of its structure in another case causes only a warning,
            // because the OMG's Security.idl has such members.
            let lenient = data && !exact && what == ScopeItem::Member;
            let diagnostic =
                if lenient { Diagnostic::warning(name.span, message) } else { Diagnostic::error(name.span, message) };
            let diagnostic = diagnostic.label("the same name").related(span, format!("the {kind}"));
            self.report(diagnostic.note("names that differ only in case are the same"));
            if !lenient {
                return;
            }
        }
        if let Some(owner) = self.scopes[scope.0].owner
            && matches!(self.model.get(owner).kind, DefinitionKind::Interface(_) | DefinitionKind::Value(_))
        {
            self.check_not_inherited(name, owner);
        }
        let built_in =
            |entry: &ScopeEntry| entry.span == Span::default() && matches!(entry.what, ScopeItem::Definition(_));
        if let Some(known) = self.scopes[scope.0].names.get(&folded).copied().filter(|entry| !built_in(entry)) {
            return self.report_repeated(name, known);
        }
        self.scopes[scope.0].names.insert(folded, ScopeEntry { symbol: name.symbol, span: name.span, what });
    }

    fn report_repeated(&mut self, name: Name, known: ScopeEntry) {
        let (text, before) = (self.text(name.symbol).to_owned(), self.text(known.symbol).to_owned());
        if let ScopeItem::Definition(id) = known.what
            && name.span == known.span
            && self.model.get(id).identity.file != self.file
        {
            return self.report_read_again(name);
        }
        let diagnostic = match known.what {
            ScopeItem::Introduced(of) => {
                let message = format!("`{text}` cannot be declared here any more");
                let place = self.model.get(of).span;
                let diagnostic = Diagnostic::error(name.span, message).label("declared too late");
                let diagnostic = diagnostic.related(known.span, format!("`{before}` is used in this scope already"));
                let diagnostic = diagnostic.related(place, "and means this");
                diagnostic.help("declare it before its first use, write the use as a name from the root (`::`), or choose another name")
            }
            _ if known.symbol == name.symbol => {
                let message = format!("`{text}` is declared twice in one scope");
                Diagnostic::error(name.span, message).label("declared again").related(known.span, "declared first")
            }
            _ => {
                let message = format!("`{text}` and `{before}` differ only in case");
                let diagnostic = Diagnostic::error(name.span, message).label("declared here");
                let diagnostic = diagnostic.related(known.span, "declared before");
                diagnostic.note("not every language distinguishes them, so IDL treats them as one name")
            }
        };
        self.report(diagnostic);
    }

    /// Finds a name in a scope and in the bases of its interface or value type. If `from_within` is
    /// false, names that a use introduced into the scope are ignored.
    fn find_in(&mut self, scope: ScopeId, name: Symbol, from_within: bool) -> LookUpResult {
        if let Some(entry) = self.entry(scope, name) {
            match entry.what {
                ScopeItem::Definition(id) => return LookUpResult::One(id, entry.symbol),
                ScopeItem::Introduced(id) if from_within => return LookUpResult::One(id, entry.symbol),
                ScopeItem::Introduced(_) | ScopeItem::Member => {}
            }
        }
        let Some(owner) = self.scopes[scope.0].owner else { return LookUpResult::Nothing };
        let inherits = match &self.model.get(owner).kind {
            DefinitionKind::Interface(interface) => !interface.bases.is_empty(),
            DefinitionKind::Value(value) => !value.bases.is_empty() || !value.supports.is_empty(),
            _ => false,
        };
        if !inherits {
            return LookUpResult::Nothing;
        }
        let folded = self.symbols.case_folded(name);
        if let Some(found) = self.scopes[scope.0].inherited.get(&folded) {
            return *found;
        }
        let found = self.find_inherited(owner, name);
        self.scopes[scope.0].inherited.insert(folded, found);
        found
    }

    fn find_inherited(&mut self, owner: DefinitionId, name: Symbol) -> LookUpResult {
        let ancestors = match self.ancestors.take() {
            Some((of, ancestors)) if of == owner => ancestors,
            _ => self.all_ancestors(owner),
        };
        let found = self.find_in_ancestors(&ancestors, name);
        self.ancestors = Some((owner, ancestors));
        found
    }

    fn all_ancestors(&self, owner: DefinitionId) -> Vec<DefinitionId> {
        let mut all = self.model.all_bases(owner);
        if let DefinitionKind::Value(value) = &self.model.get(owner).kind {
            for supported in &value.supports {
                all.push(*supported);
                all.extend(self.model.all_bases(*supported));
            }
        }
        all
    }

    fn find_in_ancestors(&self, ancestors: &[DefinitionId], name: Symbol) -> LookUpResult {
        let mut candidates: Vec<(DefinitionId, Symbol)> = Vec::new();
        for base in ancestors.iter().copied() {
            let Some(scope) = self.scope_of(base) else { continue };
            if let Some(ScopeEntry { what: ScopeItem::Definition(id), symbol, .. }) = self.entry(scope, name)
                && !candidates.iter().any(|(known, _)| *known == id)
            {
                candidates.push((id, symbol));
            }
        }
        if let [(id, symbol)] = candidates.as_slice() {
            return LookUpResult::One(*id, *symbol);
        }
        // A definition in a base hides definitions of the same name that the base inherits.
        let parents = candidates.iter().filter_map(|(id, _)| self.model.get(*id).parent);
        let hidden: HashSet<DefinitionId> = parents.flat_map(|parent| self.model.all_bases(parent)).collect();
        let is_visible = |id: DefinitionId| self.model.get(id).parent.is_none_or(|parent| !hidden.contains(&parent));
        let visible: Vec<_> = candidates.iter().copied().filter(|(id, _)| is_visible(*id)).collect();
        match visible.as_slice() {
            [] => LookUpResult::Nothing,
            [(id, symbol)] => LookUpResult::One(*id, *symbol),
            [(one, _), (two, _), ..] => LookUpResult::Several(*one, *two),
        }
    }

    /// Returns the definition that a name means in a scope. If `introduce` is true, the look-up
    /// fixes the name's meaning in the scope.
    fn look_up(&mut self, name: &ScopedName, scope: ScopeId, introduce: bool) -> ResolveResult<DefinitionId> {
        let Some((first, rest)) = name.parts.split_first() else { return Err(ReportedError) };
        let mut id = if name.is_absolute {
            self.look_up_in(ScopeId(0), *first)?
        } else {
            match self.look_up_outwards(*first, scope, introduce) {
                Ok(id) => id,
                Err(ReportedError) => {
                    self.unknown.push((name.clone(), scope));
                    return Err(ReportedError);
                }
            }
        };
        for part in rest {
            let Some(inner) = self.scope_of(id) else {
                let what = self.described(id);
                let message = format!("{what} is not a scope: nothing is declared in it");
                let span = self.model.get(id).span;
                return self.fail(Diagnostic::error(part.span, message).related(span, "declared here"));
            };
            id = self.look_up_in(inner, *part)?;
        }
        Ok(id)
    }

    fn look_up_outwards(&mut self, name: Name, scope: ScopeId, introduce: bool) -> ResolveResult<DefinitionId> {
        match self.find_outwards(name.symbol, scope) {
            (LookUpResult::Nothing, _) => self.not_found(name, None, scope),
            (LookUpResult::Several(one, two), _) => self.ambiguous(name, one, two),
            (LookUpResult::One(id, symbol), found_in) => {
                self.check_spelling(name, symbol, id);
                if introduce {
                    self.introduce(
                        ScopeEntry { symbol, span: name.span, what: ScopeItem::Introduced(id) },
                        scope,
                        found_in,
                    );
                }
                Ok(id)
            }
        }
    }

    fn find_outwards(&mut self, name: Symbol, scope: ScopeId) -> (LookUpResult, ScopeId) {
        let mut here = scope;
        loop {
            let found = self.find_in(here, name, true);
            match (found, self.scopes[here.0].outer) {
                (LookUpResult::Nothing, Some(outer)) => here = outer,
                _ => return (found, here),
            }
        }
    }

    /// Fixes the meaning of a name in its scope, and in enclosing scopes up to `found_in` that are
    /// not modules.
    fn introduce(&mut self, entry: ScopeEntry, scope: ScopeId, found_in: ScopeId) {
        let folded = self.symbols.case_folded(entry.symbol);
        let mut here = scope;
        loop {
            let module = match self.scopes[here.0].owner {
                Some(owner) => matches!(self.model.get(owner).kind, DefinitionKind::Module(_)),
                None => true,
            };
            if (module && here != scope) || self.scopes[here.0].names.contains_key(&folded) {
                return;
            }
            self.scopes[here.0].names.insert(folded, entry);
            self.scopes[here.0].introduced.push(folded);
            match self.scopes[here.0].outer {
                Some(outer) if here != found_in => here = outer,
                _ => return,
            }
        }
    }

    fn look_up_in(&mut self, scope: ScopeId, name: Name) -> ResolveResult<DefinitionId> {
        match self.find_in(scope, name.symbol, false) {
            LookUpResult::One(id, symbol) => {
                self.check_spelling(name, symbol, id);
                Ok(id)
            }
            LookUpResult::Several(one, two) => self.ambiguous(name, one, two),
            LookUpResult::Nothing => self.not_found(name, self.scopes[scope.0].owner, scope),
        }
    }

    fn check_spelling(&mut self, name: Name, defined: Symbol, id: DefinitionId) {
        if name.symbol != defined {
            let (used, wanted) = (self.text(name.symbol).to_owned(), self.text(defined).to_owned());
            let message = format!("`{used}` is spelled `{wanted}` where it is declared");
            let span = self.model.get(id).span;
            let diagnostic = Diagnostic::error(name.span, message).related(span, "declared here").giving_way();
            self.report(diagnostic.help(format!("write `{wanted}`")));
        }
    }

    fn ambiguous<T>(&mut self, name: Name, one: DefinitionId, two: DefinitionId) -> ResolveResult<T> {
        let message = format!("`{}` is inherited with two meanings", self.text(name.symbol));
        let (first, second) = (self.full_name(one), self.full_name(two));
        let (first_span, second_span) = (self.model.get(one).span, self.model.get(two).span);
        let diagnostic = Diagnostic::error(name.span, message).label("which one?");
        let diagnostic =
            diagnostic.related(first_span, format!("`{first}`")).related(second_span, format!("`{second}`"));
        self.fail(diagnostic.help(format!("write `{first}` or `{second}`")))
    }

    fn not_found<T>(&mut self, name: Name, within: Option<DefinitionId>, scope: ScopeId) -> ResolveResult<T> {
        let text = self.text(name.symbol).to_owned();
        let message = match within {
            Some(owner) => format!("there is no `{text}` in {}", self.described(owner)),
            None => self.not_declared(name),
        };
        let diagnostic = Diagnostic::error(name.span, message).label("not found");
        let near = self.nearest(&text, within.is_some(), scope);
        let near = near.or_else(|| foreign(&text).filter(|_| within.is_none()).map(str::to_owned));
        let keyword = self.symbols.keyword_ignoring_case(name.symbol).map(|keyword| keyword.text().to_owned());
        self.fail(match keyword.or(near) {
            Some(near) => diagnostic.help(format!("is `{near}` meant?")),
            None => diagnostic,
        })
    }

    fn nearest(&self, text: &str, only_here: bool, scope: ScopeId) -> Option<String> {
        let mut at = Some(scope);
        let mut best: Option<&str> = None;
        while let Some(here) = at {
            let names =
                self.scopes[here.0].names.values().filter(|entry| matches!(entry.what, ScopeItem::Definition(_)));
            for entry in names {
                let candidate = self.text(entry.symbol);
                if one_letter_off(text, candidate) && best.is_none_or(|best| candidate < best) {
                    best = Some(candidate);
                }
            }
            at = if only_here { None } else { self.scopes[here.0].outer };
        }
        best.map(str::to_owned)
    }

    fn define_built_in(&mut self) {
        let at = DeclarationSite { scope: ScopeId(0), parent: None };
        let nowhere = Span::default();
        self.prefix = "omg.org".into();
        let name = Name { symbol: self.symbols.intern("CORBA"), span: nowhere };
        let module = self.add(at, name, 0, DefinitionKind::Module(Vec::new()));
        self.declare(at.scope, name, ScopeItem::Definition(module));
        self.model.roots.push(module);
        let inner = DeclarationSite { scope: self.open_scope(at.scope, Some(module)), parent: Some(module) };
        let number = |basic| DefinitionKind::Typedef(Type::Basic(basic));
        let built_in = [
            ("TypeCode", DefinitionKind::Native),
            ("Environment", DefinitionKind::Native),
            ("ServiceType", number(BasicType::UShort)),
            ("ServiceOption", number(BasicType::ULong)),
            ("ServiceDetailType", number(BasicType::ULong)),
        ];
        for (text, kind) in built_in {
            let name = Name { symbol: self.symbols.intern(text), span: nowhere };
            let id = self.add(inner, name, 0, kind);
            self.declare(inner.scope, name, ScopeItem::Definition(id));
            self.list(inner, id);
        }
        (self.prefix, self.file) = (Arc::default(), 0);
        self.defined_anything = false;
    }
}

#[derive(Clone, Copy, Debug)]
enum LookUpResult {
    Nothing,
    One(DefinitionId, Symbol),
    Several(DefinitionId, DefinitionId),
}

fn foreign(text: &str) -> Option<&'static str> {
    Some(match text {
        "bool" => "boolean",
        "byte" | "uchar" | "uint8_t" => "octet",
        "int" | "int32_t" => "long",
        "int16_t" => "short",
        "int64_t" => "long long",
        "str" | "String" => "string",
        "uint" | "uint32_t" => "unsigned long",
        "uint16_t" | "ushort" => "unsigned short",
        "uint64_t" => "unsigned long long",
        "wchar_t" => "wchar",
        _ => return None,
    })
}

fn one_letter_off(one: &str, two: &str) -> bool {
    let (one, two) = (one.as_bytes(), two.as_bytes());
    if one.len().abs_diff(two.len()) > 1 || one.len().min(two.len()) < 2 {
        return false;
    }
    let front = one.iter().zip(two).take_while(|(a, b)| a == b).count();
    let back = one.iter().rev().zip(two.iter().rev()).take_while(|(a, b)| a == b).count();
    front + back + 1 >= one.len().max(two.len())
}
