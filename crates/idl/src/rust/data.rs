//! Generation of structures, exceptions, enumerations, unions, typedefs and constants.

use super::code::{DecodingCode, EncodedExpression};
use super::names::{escaped, free, is_reference, snake, upper_camel};
use super::path::Part;
use super::writer::{CodeLine, CodeWriter};
use super::{Generator, LintedItem};
use crate::ast::BasicType;
use crate::binary128::Binary128;
use crate::model::{Arm, ConstantValue, DefinitionId, DefinitionKind, Member, Struct, Type, Union};
use std::collections::HashSet;

impl Generator<'_> {
    pub(super) fn structure(&mut self, id: DefinitionId, structure: &Struct, exception: bool, out: &mut CodeWriter) {
        let name = self.name(id);
        let members = self.model().all_members(structure);
        let fields = self.field_names(&members);
        self.document(id, out);
        self.attributes(LintedItem::Type, out);
        let copy: &[&str] = if self.is_copy(id) && !exception { &["Copy"] } else { &[] };
        let exact: &[&str] = if self.is_exact(id) { &["Eq", "Hash"] } else { &[] };
        self.derive(id, copy, exact, out);
        if self.is_without_padding(id) {
            out.line("#[repr(C)]");
        }
        if members.is_empty() {
            out.line(&format!("pub struct {name};"));
        } else {
            out.open(&format!("pub struct {name} {{"));
            for (member, field) in members.iter().zip(&fields) {
                self.document_member(member, out);
                let ty = self.owned(&member.ty);
                out.line(&format!("pub {field}: {ty},"));
            }
            out.close("}");
        }
        if self.is_plain_definition(id) {
            let parts: Vec<String> = members
                .iter()
                .zip(&fields)
                .map(|(member, field)| format!("{field}: {}", self.owned(&member.ty)))
                .collect();
            return self.macro_call("bulk_cdr", &name, &parts, out);
        }
        let mut body = Vec::new();
        for (member, field) in members.iter().zip(&fields) {
            let lines = self.encode(&member.ty, &EncodedExpression::Place(format!("self.{field}")), "e");
            body.extend(self.named(lines, Part::Member, field, "e"));
        }
        let least = members.iter().map(|member| self.least_size(&member.ty)).fold(0, u64::saturating_add);
        self.open_cdr(&name, least, &body, out);
        let reads: Vec<_> = members
            .iter()
            .zip(&fields)
            .map(|(member, field)| {
                let read = self.decode(&member.ty, "d");
                self.named_read(read, field, "d")
            })
            .collect();
        self.open_decode(reads.is_empty(), out);
        write_value("Ok(Self", &fields, &reads, ")", out);
        out.close("}");
        out.close("}");
        if exception {
            out.gap();
            out.line(&format!("corelane::user_exception! {{ {name} = {:?} }}", self.repository_id(id)));
        }
    }

    pub(super) fn derive(&self, id: DefinitionId, copy: &[&str], compared: &[&str], out: &mut CodeWriter) {
        let mut traits = vec!["Clone"];
        traits.extend(copy);
        traits.push("Debug");
        if self.has_default(id) {
            traits.push("Default");
        }
        traits.push("PartialEq");
        traits.extend(compared);
        out.line(&format!("#[derive({})]", traits.join(", ")));
        self.derive_more(id, &traits, out);
    }

    pub(super) fn derive_more(&self, id: DefinitionId, known: &[&str], out: &mut CodeWriter) {
        let is_new = |path: &&str| !known.contains(&path.rsplit("::").next().unwrap_or(path));
        let more: Vec<&str> = self.compilation.derives.iter().map(String::as_str).filter(is_new).collect();
        if !more.is_empty() && self.is_standard(id) {
            out.line(&format!("#[derive({})]", more.join(", ")));
        }
    }

    fn field_names(&self, members: &[Member]) -> Vec<String> {
        let mut taken = HashSet::new();
        members.iter().map(|member| free(escaped(snake(self.text(member.name))), &mut taken)).collect()
    }

    fn open_cdr(&mut self, name: &str, least: u64, body: &[CodeLine], out: &mut CodeWriter) {
        let (cdr, encoder, error) = (self.runtime("Cdr"), self.runtime("Encoder"), self.runtime("CdrError"));
        out.gap();
        self.attributes(LintedItem::Type, out);
        out.open(&format!("impl {cdr} for {name} {{"));
        out.line(&format!("const MIN_SIZE: usize = {least};"));
        out.gap();
        let parameter = format!("{}: &mut {encoder}<'_>", if body.is_empty() { "_" } else { "e" });
        out.signature("fn encode(", &["&self".to_owned(), parameter], &format!("Result<(), {error}>"), " {");
        out.open_again();
        out.lines(&tail(body));
        out.close("}");
    }

    fn open_decode(&mut self, unused: bool, out: &mut CodeWriter) {
        let (decoder, error) = (self.runtime("Decoder"), self.runtime("CdrError"));
        out.gap();
        let parameter = format!("{}: &mut {decoder}<'_>", if unused { "_" } else { "d" });
        out.signature("fn decode(", &[parameter], &format!("Result<Self, {error}>"), " {");
        out.open_again();
    }

    pub(super) fn enumeration(&mut self, id: DefinitionId, enumerators: &[DefinitionId], out: &mut CodeWriter) {
        let name = self.name(id);
        self.document(id, out);
        self.attributes(LintedItem::Enum, out);
        self.derive(id, &["Copy"], &["Eq", "PartialOrd", "Ord", "Hash"], out);
        out.open(&format!("pub enum {name} {{"));
        for (at, enumerator) in enumerators.iter().enumerate() {
            self.document(*enumerator, out);
            if at == 0 {
                out.line("#[default]");
            }
            let variant = self.name(*enumerator);
            out.line(&format!("{variant},"));
        }
        out.close("}");
        let variants: Vec<String> = enumerators.iter().map(|enumerator| self.name(*enumerator)).collect();
        self.macro_call("enumeration", &name, &variants, out);
    }

    fn macro_call(&self, name: &str, subject: &str, parts: &[String], out: &mut CodeWriter) {
        out.gap();
        out.filled(&format!("corelane::{name}! {{ {subject} {{"), parts, "} }");
    }

    pub(super) fn union(&mut self, id: DefinitionId, union: &Union, out: &mut CodeWriter) {
        let name = self.name(id);
        let discriminator = self.owned(&union.discriminator);
        let mut taken = HashSet::new();
        let arms: Vec<UnionVariant> = union
            .arms
            .iter()
            .map(|arm| UnionVariant {
                name: free(escaped(upper_camel(self.text(arm.member.name))), &mut taken),
                arm: Some(arm),
                carries: arm.is_default || arm.labels.len() != 1,
            })
            .collect();
        let mut variants = arms;
        if !union.arms.iter().any(|arm| arm.is_default) && !self.covers_all(union) {
            variants.push(UnionVariant { name: free("Other".to_owned(), &mut taken), arm: None, carries: true });
        }
        self.document(id, out);
        self.attributes(LintedItem::Enum, out);
        let copy: &[&str] = if self.is_copy(id) { &["Copy"] } else { &[] };
        let exact: &[&str] = if self.is_exact(id) { &["Eq", "Hash"] } else { &[] };
        self.derive(id, copy, exact, out);
        out.open(&format!("pub enum {name} {{"));
        for variant in &variants {
            match variant.arm {
                Some(arm) => {
                    self.document_member(&arm.member, out);
                    let ty = self.owned(&arm.member.ty);
                    let carried = if variant.carries { format!("{discriminator}, ") } else { String::new() };
                    out.line(&format!("{}({carried}{ty}),", variant.name));
                }
                None => {
                    out.line("/// No member, because the discriminator has a value without a label.");
                    out.line(&format!("{}({discriminator}),", variant.name));
                }
            }
        }
        out.close("}");
        self.union_discriminator(&name, &discriminator, &variants, out);
        self.union_encode(union, (&name, &discriminator), &variants, out);
        self.union_decode(union, &variants, out);
    }

    fn union_discriminator(
        &mut self,
        name: &str,
        discriminator: &str,
        variants: &[UnionVariant<'_>],
        out: &mut CodeWriter,
    ) {
        out.gap();
        self.attributes(LintedItem::Type, out);
        out.open(&format!("impl {name} {{"));
        out.line("/// Returns the discriminator, which selects the member.");
        out.open(&format!("pub fn discriminator(&self) -> {discriminator} {{"));
        out.open("match self {");
        for variant in variants {
            let UnionVariant { name, arm, carries } = variant;
            match (arm, carries) {
                (Some(_), true) => out.line(&format!("Self::{name}(discriminator, _) => *discriminator,")),
                (None, _) => out.line(&format!("Self::{name}(discriminator) => *discriminator,")),
                (Some(arm), false) => {
                    let label = arm.labels.first().map_or_else(String::new, |label| self.label(label));
                    out.line(&format!("Self::{name}(_) => {label},"));
                }
            }
        }
        out.close("}");
        out.close("}");
        out.close("}");
    }

    fn union_encode(
        &mut self,
        union: &Union,
        (name, discriminator): (&str, &str),
        variants: &[UnionVariant<'_>],
        out: &mut CodeWriter,
    ) {
        let least = self.least_size(&union.discriminator);
        let mut body = Vec::new();
        let labels = |arms: &[&Arm]| arms.iter().flat_map(|arm| arm.labels.clone()).collect::<Vec<_>>();
        let mut checks = Vec::new();
        for variant in variants.iter().filter(|variant| variant.carries) {
            let pattern = match variant.arm {
                Some(_) => format!("Self::{}(discriminator, _)", variant.name),
                None => format!("Self::{}(discriminator)", variant.name),
            };
            // The default arm, or the variant without a member, covers all values without a label.
            let (own, negated) = match variant.arm {
                Some(arm) if !arm.is_default => (arm.labels.clone(), false),
                _ => {
                    let others: Vec<&Arm> = union.arms.iter().filter(|arm| !arm.is_default).collect();
                    (labels(&others), true)
                }
            };
            if own.is_empty() {
                continue;
            }
            checks.push((pattern, own, negated));
        }
        let error = self.runtime("CdrError");
        if !checks.is_empty() {
            body.push(CodeLine::Open("let chosen = match self {".to_owned()));
            for (pattern, labels, negated) in &checks {
                let not = if *negated { "!" } else { "" };
                let joined = self.label_patterns(labels).join(" | ");
                if let [ConstantValue::Boolean(label)] = labels.as_slice() {
                    let not = if *label == *negated { "!" } else { "" };
                    body.push(CodeLine::plain(format!("{pattern} => {not}*discriminator,")));
                } else if joined.len() <= 40 {
                    body.push(CodeLine::plain(format!("{pattern} => {not}matches!(discriminator, {joined}),")));
                } else {
                    body.push(CodeLine::Open(format!("{pattern} => {{")));
                    let before = format!("const LABELS: &[{discriminator}] = &[");
                    let items = labels.iter().map(|label| self.label(label)).collect();
                    body.push(CodeLine::Table { before, items, after: "];".to_owned() });
                    body.push(CodeLine::plain(format!("{not}LABELS.contains(discriminator)")));
                    body.push(CodeLine::Close("}".to_owned()));
                }
            }
            if checks.len() < variants.len() {
                body.push(CodeLine::plain("_ => true,"));
            }
            body.push(CodeLine::Close("};".to_owned()));
            body.push(CodeLine::Open("if !chosen {".to_owned()));
            body.push(CodeLine::plain(format!("return Err({error}::BadDiscriminator);")));
            body.push(CodeLine::Close("}".to_owned()));
        }
        body.extend(self.encode(
            &union.discriminator,
            &EncodedExpression::Place("self.discriminator()".to_owned()),
            "e",
        ));
        body.push(CodeLine::Open("match self {".to_owned()));
        for variant in variants {
            let Some(arm) = variant.arm else {
                body.push(CodeLine::plain(format!("Self::{}(_) => {{}}", variant.name)));
                continue;
            };
            let skip = if variant.carries { "_, " } else { "" };
            body.push(CodeLine::Open(format!("Self::{}({skip}value) => {{", variant.name)));
            let lines = self.encode(&arm.member.ty, &EncodedExpression::Reference("value".to_owned()), "e");
            let name = snake(self.text(arm.member.name));
            body.extend(self.named(lines, Part::Member, &name, "e"));
            body.push(CodeLine::Close("}".to_owned()));
        }
        body.push(CodeLine::Close("}".to_owned()));
        self.open_cdr(name, least, &body, out);
    }

    fn union_decode(&mut self, union: &Union, variants: &[UnionVariant<'_>], out: &mut CodeWriter) {
        self.open_decode(false, out);
        out.lines(&self.decode_into(&union.discriminator, "discriminator", "d"));
        if let [UnionVariant { name, arm: Some(arm), .. }] = variants
            && arm.is_default
        {
            let lines = self.decode_into(&arm.member.ty, "value", "d");
            let member = snake(self.text(arm.member.name));
            out.lines(&self.named(lines, Part::Member, &member, "d"));
            out.line(&format!("Ok(Self::{name}(discriminator, value))"));
            out.close("}");
            return out.close("}");
        }
        out.open("match discriminator {");
        let mut catches_all = false;
        // The default arm becomes the last match arm, even if other arms follow it in the IDL.
        let ordered = variants.iter().filter(|variant| variant.arm.is_some_and(|arm| !arm.is_default));
        let last = variants.iter().filter(|variant| variant.arm.is_none_or(|arm| arm.is_default));
        for variant in ordered.chain(last) {
            let pattern = match variant.arm {
                Some(arm) if !arm.is_default => self.label_patterns(&arm.labels),
                _ => {
                    catches_all = true;
                    vec!["_".to_owned()]
                }
            };
            let carried = if variant.carries { "discriminator, " } else { "" };
            let Some(arm) = variant.arm else {
                out.line(&format!("_ => Ok(Self::{}(discriminator)),", variant.name));
                continue;
            };
            let read = self.decode(&arm.member.ty, "d");
            let read = self.named_read(read, &snake(self.text(arm.member.name)), "d");
            let head = patterns(&pattern, out);
            match read {
                DecodingCode::Expression(value) => {
                    if carried.len() + value.len() + variant.name.len() + 8 <= 60 {
                        out.arm(&head, &format!("Ok(Self::{}({carried}{value}))", variant.name));
                    } else {
                        out.open(&format!("{head} => {{"));
                        out.value(&format!("let value = {value}"), ";");
                        out.line(&format!("Ok(Self::{}({carried}value))", variant.name));
                        out.close("}");
                    }
                }
                DecodingCode::Block(lines, value) => {
                    out.open(&format!("{head} => {{"));
                    out.open("let value = {");
                    out.lines(&lines);
                    out.line(&value);
                    out.close("};");
                    out.line(&format!("Ok(Self::{}({carried}value))", variant.name));
                    out.close("}");
                }
            }
        }
        let exhaustive = self.covers_all(union)
            && !matches!(self.model().unaliased(&union.discriminator), Type::Basic(BasicType::Char));
        if !catches_all && !exhaustive {
            let error = self.runtime("CdrError");
            out.line(&format!("_ => Err({error}::BadDiscriminator),"));
        }
        out.close("}");
        out.close("}");
        out.close("}");
    }

    fn covers_all(&self, union: &Union) -> bool {
        let labels = union.arms.iter().map(|arm| arm.labels.len()).sum::<usize>();
        match self.model().unaliased(&union.discriminator) {
            Type::Basic(BasicType::Boolean) => labels == 2,
            Type::Basic(BasicType::Char | BasicType::Octet | BasicType::Int8 | BasicType::UInt8) => labels == 256,
            Type::Basic(BasicType::Short | BasicType::UShort) => labels == 65_536,
            Type::Named(id) => match &self.model().get(*id).kind {
                DefinitionKind::Enum(enumerators) => labels == enumerators.len(),
                _ => false,
            },
            _ => false,
        }
    }

    fn label(&mut self, value: &ConstantValue) -> String {
        self.constant_value(value, false)
    }

    /// Returns the labels as patterns. Three or more consecutive numbers or characters become a
    /// range.
    fn label_patterns(&mut self, labels: &[ConstantValue]) -> Vec<String> {
        let place = |label: &ConstantValue| match label {
            ConstantValue::Integer(number) => Some(*number),
            ConstantValue::Character(character) => Some(i128::from(u32::from(*character))),
            _ => None,
        };
        let mut labels = labels.to_vec();
        if labels.iter().all(|label| place(label).is_some()) {
            labels.sort_by_key(place);
        }
        let follows = |one: &ConstantValue, next: &ConstantValue| {
            place(one).zip(place(next)).is_some_and(|(one, next)| one + 1 == next)
        };
        let mut patterns = Vec::new();
        for run in labels.chunk_by(follows) {
            match run {
                [first, _, .., last] => patterns.push(format!("{}..={}", self.label(first), self.label(last))),
                _ => patterns.extend(run.iter().map(|label| self.label(label))),
            }
        }
        patterns
    }

    pub(super) fn typedef(&mut self, id: DefinitionId, ty: &Type, out: &mut CodeWriter) {
        let name = self.name(id);
        // The generated code writes an `Option` around an object reference wherever the alias is
        // used. So the alias names the reference type without the `Option`.
        let of = match self.model().unaliased_definition(ty) {
            Some(of) if is_reference(self.model(), of) => match ty {
                Type::Named(direct) => self.path_to(*direct),
                _ => self.owned(ty),
            },
            _ => self.owned(ty),
        };
        self.document(id, out);
        self.attributes(LintedItem::Type, out);
        out.assign(&format!("pub type {name}"), &of);
    }

    pub(super) fn constant(&mut self, id: DefinitionId, ty: &Type, value: &ConstantValue, out: &mut CodeWriter) {
        let resolved = self.model().unaliased(ty).clone();
        let (of, single) = match &resolved {
            Type::String(..) => ("&str".to_owned(), false),
            Type::Basic(BasicType::Float) => (self.owned(ty), true),
            Type::FixedConstant => (self.fixed_of(value), false),
            _ => (self.owned(ty), false),
        };
        let text = match (&resolved, value) {
            (Type::Fixed(_, behind), ConstantValue::Fixed(digits, scale)) => {
                let raised = digits * 10_i128.pow(u32::from(*behind).saturating_sub(*scale));
                format!("{}::constant({raised})", self.runtime("Fixed"))
            }
            _ => self.constant_value(value, single),
        };
        let name = self.name(id);
        self.document(id, out);
        self.attributes(LintedItem::Constant, out);
        out.assign(&format!("pub const {name}: {of}"), &text);
    }

    fn fixed_of(&mut self, value: &ConstantValue) -> String {
        let ConstantValue::Fixed(digits, scale) = value else { return "()".to_owned() };
        let count = digits.unsigned_abs().checked_ilog10().map_or(1, |most| most + 1);
        format!("{}<{}, {scale}>", self.runtime("Fixed"), count.max(*scale))
    }

    fn constant_value(&mut self, value: &ConstantValue, single: bool) -> String {
        match value {
            ConstantValue::Integer(value) => value.to_string(),
            #[expect(clippy::cast_possible_truncation, reason = "the value was checked to fit")]
            ConstantValue::Float(value) if single => format!("{:?}", *value as f32),
            ConstantValue::Float(value) => format!("{value:?}"),
            ConstantValue::LongDouble(value) => {
                let (name, double) = (self.runtime("LongDouble"), value.to_f64());
                if Binary128::from_f64(double) == *value {
                    return format!("{name}::from_f64({double:?})");
                }
                let bits = format!("{:032x}", value.bits());
                let groups: Vec<&str> = (0..8).map(|group| &bits[group * 4..group * 4 + 4]).collect();
                format!("{name}::from_bits(0x{})", groups.join("_"))
            }
            ConstantValue::Boolean(value) => value.to_string(),
            ConstantValue::Character(value) => format!("{value:?}"),
            ConstantValue::String(value) => format!("{value:?}"),
            ConstantValue::Enumerator(id) => {
                let of = match self.model().get(*id).kind {
                    DefinitionKind::Enumerator(of, _) => of,
                    _ => *id,
                };
                format!("{}::{}", self.path_to(of), self.name(*id))
            }
            ConstantValue::Fixed(digits, _) => format!("{}::constant({digits})", self.runtime("Fixed")),
            ConstantValue::Faulty => "()".to_owned(),
        }
    }
}

/// A variant of the generated enumeration. `arm` is `None` in the variant for values without a
/// label.
struct UnionVariant<'m> {
    name: String,
    arm: Option<&'m Arm>,
    carries: bool,
}

pub(super) fn tail(body: &[CodeLine]) -> Vec<CodeLine> {
    let mut lines = body.to_vec();
    match lines.last_mut() {
        Some(CodeLine::Plain(text)) if text.ends_with(")?;") && !text.starts_with("let ") => {
            text.truncate(text.len() - 2)
        }
        Some(CodeLine::Call { before, after, .. }) if after == ")?;" && !before.starts_with("let ") => {
            ")".clone_into(after)
        }
        _ => lines.push(CodeLine::plain("Ok(())")),
    }
    lines
}

pub(super) fn write_value(before: &str, fields: &[String], reads: &[DecodingCode], after: &str, out: &mut CodeWriter) {
    if fields.is_empty() {
        return out.line(&format!("{before}{after}"));
    }
    let simple: Option<Vec<String>> = fields
        .iter()
        .zip(reads)
        .map(|(field, read)| match read {
            DecodingCode::Expression(value) => Some(format!("{field}: {value}")),
            DecodingCode::Block(..) => None,
        })
        .collect();
    if let Some(simple) = simple {
        return out.fields(before, &simple, after);
    }
    out.open(&format!("{before} {{"));
    for (field, read) in fields.iter().zip(reads) {
        match read {
            DecodingCode::Expression(value) => out.value(&format!("{field}: {value}"), ","),
            DecodingCode::Block(lines, value) => {
                out.open(&format!("{field}: {{"));
                out.lines(lines);
                out.line(value);
                out.close("},");
            }
        }
    }
    out.close(&format!("}}{after}"));
}

/// Returns the alternatives, joined, if they fit into a line. Otherwise writes each alternative
/// except the last as a line, and returns the last.
fn patterns(patterns: &[String], out: &mut CodeWriter) -> String {
    let joined = patterns.join(" | ");
    if joined.len() <= 60 {
        return joined;
    }
    for (at, pattern) in patterns.iter().enumerate().take(patterns.len() - 1) {
        out.line(&if at == 0 { pattern.clone() } else { format!("| {pattern}") });
    }
    format!("| {}", patterns[patterns.len() - 1])
}
