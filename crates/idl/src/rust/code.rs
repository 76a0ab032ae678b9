//! Statements that encode and decode values. Types with a single CDR form use the `Cdr` trait.
//! Characters, wide text, bounded types and references need explicit calls, because several IDL
//! types map to the same Rust type.

use super::Generator;
use super::writer::CodeLine;
use crate::ast::{BasicType, InterfaceFlavor};
use crate::model::{DefinitionKind, Type};

#[derive(Clone, Debug)]
pub(super) enum EncodedExpression {
    Place(String),
    Reference(String),
}

impl EncodedExpression {
    fn value(&self) -> String {
        match self {
            Self::Place(text) => text.clone(),
            Self::Reference(text) => format!("*{text}"),
        }
    }

    fn reference(&self) -> String {
        match self {
            Self::Place(text) => format!("&{text}"),
            Self::Reference(text) => text.clone(),
        }
    }

    fn subject(&self) -> &str {
        match self {
            Self::Place(text) | Self::Reference(text) => text,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum DecodingCode {
    Expression(String),
    Block(Vec<CodeLine>, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handle {
    Reference,
    Value,
    Abstract,
    /// The value cannot be sent: it is a local object or of a native type.
    Local,
}

impl Handle {
    fn write(self) -> &'static str {
        match self {
            Self::Reference => "write_reference",
            Self::Value => "write_value",
            Self::Abstract => "write_abstract",
            Self::Local => "write_local",
        }
    }

    fn read(self) -> &'static str {
        match self {
            Self::Reference => "read_reference",
            Self::Value => "read_value",
            Self::Abstract => "read_abstract",
            Self::Local => "read_local",
        }
    }
}

impl Generator<'_> {
    fn handle_of(&self, ty: &Type) -> Option<Handle> {
        match self.model().unaliased(ty) {
            Type::Basic(BasicType::Object) => Some(Handle::Reference),
            Type::Basic(BasicType::ValueBase) => Some(Handle::Value),
            Type::Named(id) => match &self.model().get(*id).kind {
                DefinitionKind::Interface(interface) => Some(match interface.flavor {
                    InterfaceFlavor::Remote => Handle::Reference,
                    InterfaceFlavor::Local => Handle::Local,
                    InterfaceFlavor::Abstract => Handle::Abstract,
                }),
                DefinitionKind::Value(_) | DefinitionKind::ValueBox(_) => Some(Handle::Value),
                DefinitionKind::Native if !self.is_type_code(ty) => Some(Handle::Local),
                _ => None,
            },
            _ => None,
        }
    }

    fn is_by_value(&self, ty: &Type) -> bool {
        match self.model().unaliased(ty) {
            Type::Basic(basic) => *basic != BasicType::Any && self.handle_of(ty).is_none(),
            Type::Fixed(..) => true,
            Type::Named(id) => {
                matches!(
                    self.model().get(*id).kind,
                    DefinitionKind::Enum(_) | DefinitionKind::Bitmask(_) | DefinitionKind::Bitset(_)
                )
            }
            _ => false,
        }
    }

    fn call_of(&self, ty: &Type) -> Option<&'static str> {
        let Type::Basic(basic) = self.model().unaliased(ty) else { return None };
        Some(match basic {
            BasicType::Short => "i16",
            BasicType::UShort => "u16",
            BasicType::Long => "i32",
            BasicType::ULong => "u32",
            BasicType::LongLong => "i64",
            BasicType::ULongLong => "u64",
            BasicType::Int8 => "i8",
            BasicType::UInt8 | BasicType::Octet => "u8",
            BasicType::Float => "f32",
            BasicType::Double => "f64",
            BasicType::Boolean => "bool",
            BasicType::Char => "char",
            BasicType::WChar => "wchar",
            _ => return None,
        })
    }

    fn is_number(&self, ty: &Type) -> bool {
        self.call_of(ty).is_some_and(|call| !matches!(call, "bool" | "char" | "wchar"))
    }

    /// Returns true if the Rust type alone determines the encoding.
    fn has_cdr(&self, ty: &Type) -> bool {
        if self.handle_of(ty).is_some() {
            return false;
        }
        match self.model().unaliased(ty) {
            Type::Basic(basic) => !matches!(basic, BasicType::Char | BasicType::WChar),
            Type::String(wide, bound) => !wide && bound.is_none(),
            Type::Sequence(element, bound) => bound.is_none() && self.has_cdr(element),
            Type::Array(element, _) => self.has_cdr(element),
            Type::Map(..) => false,
            _ => true,
        }
    }

    pub(super) fn encode(&mut self, ty: &Type, operand: &EncodedExpression, e: &str) -> Vec<CodeLine> {
        let resolved = self.model().unaliased(ty).clone();
        if let Some(call) = self.call_of(ty) {
            let fallible = if matches!(call, "char" | "wchar") { "?" } else { "" };
            return vec![CodeLine::plain(format!("{e}.write_{call}({}){fallible};", operand.value()))];
        }
        let one = |before: String, argument: String, more: &str| {
            let arguments = std::iter::once(argument).chain((!more.is_empty()).then(|| more.to_owned())).collect();
            vec![CodeLine::Call { before, arguments, after: ")?;".to_owned() }]
        };
        match &resolved {
            Type::String(wide, bound) => {
                let call = format!(
                    "{e}.write_{}{}(",
                    if bound.is_some() { "bounded_" } else { "" },
                    if *wide { "wstr" } else { "str" }
                );
                one(call, operand.reference(), &bound.map_or(String::new(), |bound| bound.to_string()))
            }
            _ if self.handle_of(ty).is_some() => self.encode_handle(ty, operand, e),
            _ if self.has_cdr(ty) => {
                let cdr = self.runtime("Cdr");
                one(format!("{cdr}::encode("), operand.reference(), e)
            }
            Type::Sequence(element, bound) => {
                let mut lines = self.encode_length(operand.subject(), *bound, e);
                lines.extend(self.encode_elements(element, operand, e));
                lines
            }
            Type::Array(element, dimensions) => {
                let inner = match dimensions.split_first() {
                    Some((_, rest)) if !rest.is_empty() => Type::Array(element.clone(), rest.to_vec()),
                    _ => (**element).clone(),
                };
                let operand = match operand {
                    EncodedExpression::Place(text) if self.is_boxed(&resolved) => {
                        EncodedExpression::Reference(format!("{text}.iter()"))
                    }
                    other => other.clone(),
                };
                self.encode_loop(&inner, &operand, e)
            }
            Type::Map(pair, bound) => {
                let list = match operand {
                    EncodedExpression::Place(text) => format!("&{text}"),
                    EncodedExpression::Reference(text) => text.clone(),
                };
                let mut lines = self.encode_length(operand.subject(), *bound, e);
                lines.push(CodeLine::Open(format!("for (key, value) in {list} {{")));
                lines.extend(self.encode(&pair.0, &EncodedExpression::Reference("key".to_owned()), e));
                lines.extend(self.encode(&pair.1, &EncodedExpression::Reference("value".to_owned()), e));
                lines.push(CodeLine::Close("}".to_owned()));
                lines
            }
            _ => Vec::new(),
        }
    }

    fn encode_handle(&mut self, ty: &Type, operand: &EncodedExpression, e: &str) -> Vec<CodeLine> {
        let handle = self.handle_of(ty).unwrap_or(Handle::Local);
        let call = self.runtime(handle.write());
        let argument = match handle {
            Handle::Local => operand.reference(),
            _ => format!("{}.as_ref()", operand.subject()),
        };
        vec![CodeLine::Call {
            before: format!("{call}("),
            arguments: vec![e.to_owned(), argument],
            after: ")?;".to_owned(),
        }]
    }

    fn encode_length(&self, subject: &str, bound: Option<u32>, e: &str) -> Vec<CodeLine> {
        let length = format!("{subject}.len()");
        let (call, arguments) = match bound {
            Some(bound) => ("write_len_bounded", vec![length, bound.to_string()]),
            None => ("write_len", vec![length]),
        };
        vec![CodeLine::Call { before: format!("{e}.{call}("), arguments, after: ")?;".to_owned() }]
    }

    fn encode_elements(&mut self, element: &Type, operand: &EncodedExpression, e: &str) -> Vec<CodeLine> {
        let slice = operand.reference();
        if self.is_octet(element) {
            vec![CodeLine::plain(format!("{e}.write_bytes({slice});"))]
        } else if self.is_number(element) {
            vec![CodeLine::plain(format!("{e}.write_slice({slice});"))]
        } else if self.call_of(element) == Some("bool") {
            vec![CodeLine::plain(format!("{e}.write_bools({slice});"))]
        } else if self.has_cdr(element) {
            let cdr = self.runtime("Cdr");
            let arguments = vec![slice, e.to_owned()];
            vec![CodeLine::Call { before: format!("{cdr}::encode_all("), arguments, after: ")?;".to_owned() }]
        } else {
            self.encode_loop(element, operand, e)
        }
    }

    fn encode_loop(&mut self, element: &Type, operand: &EncodedExpression, e: &str) -> Vec<CodeLine> {
        let list = match operand {
            EncodedExpression::Place(text) => format!("&{text}"),
            EncodedExpression::Reference(text) => text.clone(),
        };
        let mut lines = vec![CodeLine::Open(format!("for item in {list} {{"))];
        lines.extend(self.encode(element, &EncodedExpression::Reference("item".to_owned()), e));
        lines.push(CodeLine::Close("}".to_owned()));
        lines
    }

    pub(super) fn encode_parameter(&mut self, ty: &Type, name: &str, e: &str) -> Vec<CodeLine> {
        let resolved = self.model().unaliased(ty).clone();
        match &resolved {
            _ if self.handle_of(ty).is_some() => self.encode_optional(ty, name, e),
            _ if self.is_by_value(ty) => self.encode(ty, &EncodedExpression::Place(name.to_owned()), e),
            Type::Sequence(element, None) if self.is_octet(element) => {
                vec![CodeLine::plain(format!("{e}.write_octet_sequence({name})?;"))]
            }
            Type::Sequence(element, bound) if self.is_string(element) => {
                let mut lines = self.encode_length(name, *bound, e);
                lines.push(CodeLine::Open(format!("for item in {name} {{")));
                lines.extend(self.encode(element, &EncodedExpression::Reference("item".to_owned()), e));
                lines.push(CodeLine::Close("}".to_owned()));
                lines
            }
            Type::Sequence(element, bound) if self.is_number(element) => {
                let mut lines = self.encode_length(name, *bound, e);
                lines.push(CodeLine::plain(format!("{e}.write_slice_borrowed({name});")));
                lines
            }
            Type::Sequence(element, bound) => {
                let mut lines = self.encode_length(name, *bound, e);
                lines.extend(self.encode_elements(element, &EncodedExpression::Reference(name.to_owned()), e));
                lines
            }
            _ => self.encode(ty, &EncodedExpression::Reference(name.to_owned()), e),
        }
    }

    fn encode_optional(&mut self, ty: &Type, name: &str, e: &str) -> Vec<CodeLine> {
        let handle = self.handle_of(ty).unwrap_or(Handle::Local);
        let call = self.runtime(handle.write());
        let arguments = vec![e.to_owned(), name.to_owned()];
        vec![CodeLine::Call { before: format!("{call}("), arguments, after: ")?;".to_owned() }]
    }

    pub(super) fn encode_result(&mut self, ty: &Type, name: &str, e: &str) -> Vec<CodeLine> {
        match self.model().unaliased(ty) {
            Type::Sequence(element, None) if self.is_octet(element) => {
                vec![CodeLine::plain(format!("{e}.write_octet_sequence_owned({name})?;"))]
            }
            Type::Sequence(element, bound) if self.is_number(element) && !self.is_octet(element) => {
                let mut lines = self.encode_length(name, *bound, e);
                lines.push(CodeLine::plain(format!("{e}.write_slice_owned({name});")));
                lines
            }
            _ => self.encode(ty, &EncodedExpression::Place(name.to_owned()), e),
        }
    }

    pub(super) fn decode(&mut self, ty: &Type, d: &str) -> DecodingCode {
        if let Some(call) = self.call_of(ty) {
            return DecodingCode::Expression(format!("{d}.read_{call}()?"));
        }
        let resolved = self.model().unaliased(ty).clone();
        match &resolved {
            Type::String(wide, bound) => {
                let name = if *wide { "wstring" } else { "string" };
                DecodingCode::Expression(match bound {
                    Some(bound) => format!("{d}.read_bounded_{name}({bound})?"),
                    None => format!("{d}.read_{name}()?"),
                })
            }
            _ if self.handle_of(ty).is_some() => self.decode_handle(ty, d),
            Type::Sequence(element, None) if self.is_octet(element) => {
                DecodingCode::Expression(format!("{d}.read_octet_sequence_owned()?"))
            }
            _ if self.has_cdr(ty) => {
                let cdr = self.runtime("Cdr");
                DecodingCode::Expression(format!("{cdr}::decode({d})?"))
            }
            Type::Sequence(element, bound) => self.decode_sequence(element, *bound, d),
            Type::Array(element, dimensions) => {
                let inner = match dimensions.split_first() {
                    Some((_, rest)) if !rest.is_empty() => Type::Array(element.clone(), rest.to_vec()),
                    _ => (**element).clone(),
                };
                let count = dimensions.first().copied().unwrap_or(0);
                let mut lines = self.decode_loop(&inner, &count.to_string(), &count.min(1024).to_string(), d);
                let error = self.runtime("CdrError");
                let list = if self.is_boxed(&resolved) { "list.into_boxed_slice()" } else { "list" };
                lines.push(CodeLine::plain(format!("let array = {list}.try_into();")));
                DecodingCode::Block(lines, format!("array.map_err(|_| {error}::Truncated)?"))
            }
            Type::Map(pair, bound) => self.decode_map(pair, *bound, d),
            _ => DecodingCode::Expression("()".to_owned()),
        }
    }

    /// Returns the code that reads a map. If several pairs of an ordered map have the same key, the
    /// last pair is kept. A map that is a list of pairs keeps all pairs.
    fn decode_map(&mut self, pair: &(Type, Type), bound: Option<u32>, d: &str) -> DecodingCode {
        let least = self.least_size(&pair.0).saturating_add(self.least_size(&pair.1));
        let mut lines = vec![CodeLine::plain(match bound {
            Some(bound) => format!("let len = {d}.read_len_bounded({least}, {bound})?;"),
            None => format!("let len = {d}.read_len({least})?;"),
        })];
        let ordered = self.is_ordered(&pair.0);
        let (make, add) = if ordered {
            ("let mut map = std::collections::BTreeMap::new();", "map.insert(key, value);")
        } else {
            ("let mut map = Vec::new();", "map.push((key, value));")
        };
        lines.push(CodeLine::plain(make));
        lines.push(CodeLine::plain(format!("{d}.enter_nesting()?;")));
        lines.push(CodeLine::Open("for _ in 0..len {".to_owned()));
        lines.extend(self.decode_into(&pair.0, "key", d));
        lines.extend(self.decode_into(&pair.1, "value", d));
        lines.push(CodeLine::plain(add));
        lines.push(CodeLine::Close("}".to_owned()));
        lines.push(CodeLine::plain(format!("{d}.leave_nesting();")));
        DecodingCode::Block(lines, "map".to_owned())
    }

    fn decode_handle(&mut self, ty: &Type, d: &str) -> DecodingCode {
        let handle = self.handle_of(ty).unwrap_or(Handle::Local);
        let call = self.runtime(handle.read());
        DecodingCode::Expression(format!("{call}({d})?"))
    }

    fn read_length(&self, element: &Type, bound: Option<u32>, d: &str) -> String {
        let least = self.least_size(element);
        match bound {
            Some(bound) => format!("let len = {d}.read_len_bounded({least}, {bound})?;"),
            None => format!("let len = {d}.read_len({least})?;"),
        }
    }

    fn decode_sequence(&mut self, element: &Type, bound: Option<u32>, d: &str) -> DecodingCode {
        let mut lines = vec![CodeLine::plain(self.read_length(element, bound, d))];
        if self.is_octet(element) {
            return DecodingCode::Block(lines, format!("{d}.read_bytes(len)?.into()"));
        }
        if self.has_cdr(element) {
            let cdr = self.runtime("Cdr");
            return DecodingCode::Block(lines, format!("{cdr}::decode_many(len, {d})?"));
        }
        lines.extend(self.decode_loop(element, "len", "len.min(1024)", d));
        DecodingCode::Block(lines, "list".to_owned())
    }

    fn decode_loop(&mut self, element: &Type, count: &str, capacity: &str, d: &str) -> Vec<CodeLine> {
        let ty = self.owned(element);
        let mut lines = vec![
            CodeLine::plain(format!("let mut list: Vec<{ty}> = Vec::with_capacity({capacity});")),
            CodeLine::Open(format!("for _ in 0..{count} {{")),
        ];
        match self.decode(element, d) {
            DecodingCode::Expression(value) => lines.push(CodeLine::plain(format!("list.push({value});"))),
            DecodingCode::Block(inner, value) => {
                lines.push(CodeLine::Open("list.push({".to_owned()));
                lines.extend(inner);
                lines.push(CodeLine::plain(value));
                lines.push(CodeLine::Close("});".to_owned()));
            }
        }
        lines.push(CodeLine::Close("}".to_owned()));
        lines
    }

    pub(super) fn decode_into(&mut self, ty: &Type, name: &str, d: &str) -> Vec<CodeLine> {
        let annotation = match self.model().unaliased(ty) {
            Type::Basic(_) if self.call_of(ty).is_some() => String::new(),
            Type::String(..) => String::new(),
            _ => format!(": {}", self.owned(ty)),
        };
        match self.decode(ty, d) {
            DecodingCode::Expression(value) => vec![CodeLine::Assign(format!("let {name}{annotation}"), value)],
            DecodingCode::Block(inner, value) => {
                let mut lines = vec![CodeLine::Open(format!("let {name}{annotation} = {{"))];
                lines.extend(inner);
                lines.push(CodeLine::plain(value));
                lines.push(CodeLine::Close("};".to_owned()));
                lines
            }
        }
    }

    /// Returns statements that read an argument for a servant, in place if possible, and the
    /// expression that passes the argument.
    pub(super) fn decode_argument(&mut self, ty: &Type, name: &str, d: &str) -> (Vec<CodeLine>, String) {
        let resolved = self.model().unaliased(ty).clone();
        let lent = |lines: Vec<String>| (lines.into_iter().map(CodeLine::Plain).collect(), name.to_owned());
        match &resolved {
            Type::String(wide, bound) => {
                let call = if *wide { "wstr" } else { "str" };
                lent(vec![match bound {
                    Some(bound) => format!("let {name} = {d}.read_bounded_{call}({bound})?;"),
                    None => format!("let {name} = {d}.read_{call}()?;"),
                }])
            }
            Type::Sequence(element, None) if self.is_octet(element) => {
                lent(vec![format!("let {name} = {d}.read_octet_sequence()?;")])
            }
            Type::Sequence(element, bound) if self.is_octet(element) => {
                lent(vec![self.read_length(element, *bound, d), format!("let {name} = {d}.read_bytes(len)?;")])
            }
            Type::Sequence(element, bound) if self.is_number(element) => {
                let element = self.model().unaliased(element).clone();
                let number = self.owned(&element);
                lent(vec![
                    self.read_length(&element, *bound, d),
                    format!("let {name} = {d}.read_slice::<{number}>(len)?;"),
                ])
            }
            Type::Sequence(element, bound) if self.is_plain(element) => {
                lent(vec![self.read_length(element, *bound, d), format!("let {name} = {d}.read_bulk(len)?;")])
            }
            Type::Sequence(element, bound) if self.is_lent(element) => {
                let reader = self.element_reader(element);
                lent(vec![
                    self.read_length(element, *bound, d),
                    format!("let {name} = {d}.read_slice_with(len, {reader})?;"),
                ])
            }
            _ if self.handle_of(ty).is_some() => (self.decode_into(ty, name, d), format!("{name}.as_ref()")),
            _ if self.is_by_value(ty) => (self.decode_into(ty, name, d), name.to_owned()),
            _ => (self.decode_into(ty, name, d), format!("&{name}")),
        }
    }

    fn is_lent(&self, element: &Type) -> bool {
        let explicit = self.is_string(element) || self.call_of(element).is_some();
        explicit || (self.is_fixed_size(element) && self.has_cdr(element))
    }

    fn element_reader(&mut self, element: &Type) -> String {
        let resolved = self.model().unaliased(element).clone();
        match &resolved {
            Type::String(wide, bound) => {
                let call = if *wide { "wstr" } else { "str" };
                match bound {
                    Some(bound) => format!("|d| d.read_bounded_{call}({bound})"),
                    None => format!("|d| d.read_{call}()"),
                }
            }
            _ if self.call_of(element).is_some() => format!("|d| d.read_{}()", self.call_of(element).unwrap_or("u8")),
            _ if self.has_cdr(element) => {
                let (ty, cdr) = (self.owned(element), self.runtime("Cdr"));
                format!("<{ty} as {cdr}>::decode")
            }
            _ => String::new(),
        }
    }
}
