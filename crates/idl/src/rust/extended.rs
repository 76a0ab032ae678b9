//! Generation of bit masks and bit sets of IDL 4, and of aliases for native types.

use super::names::{escaped, free, screaming, snake};
use super::writer::CodeWriter;
use super::{Generator, LintedItem};
use crate::ast::BasicType;
use crate::model::{Bitmask, Bitset, BitsetField, DefinitionId, Type};
use std::collections::HashSet;

const DERIVED: &[&str] = &["Clone", "Copy", "Debug", "Default", "PartialEq", "Eq", "PartialOrd", "Ord", "Hash"];

impl Generator<'_> {
    pub(super) fn bitmask(&mut self, id: DefinitionId, mask: &Bitmask, out: &mut CodeWriter) {
        let name = self.name(id);
        out.open("corelane::bit_mask! {");
        self.document(id, out);
        self.attributes(LintedItem::Type, out);
        self.derive_more(id, DERIVED, out);
        out.open(&format!("pub struct {name}({}) {{", number(mask.bound)));
        let mut taken = HashSet::new();
        for (flag, position) in &mask.flags {
            let flag = free(escaped(screaming(self.text(*flag))), &mut taken);
            out.line(&format!("{flag} = {position},"));
        }
        out.close("}");
        out.close("}");
    }

    pub(super) fn bitset(&mut self, id: DefinitionId, set: &Bitset, out: &mut CodeWriter) {
        let name = self.name(id);
        let fields = self.model().bit_fields(id);
        out.open("corelane::bit_set! {");
        self.document(id, out);
        self.attributes(LintedItem::Type, out);
        self.derive_more(id, DERIVED, out);
        out.open(&format!("pub struct {name}({}) {{", number(set.bits)));
        let (mut taken, mut place) = (HashSet::new(), 0);
        for field in fields {
            if let Some(symbol) = field.name {
                let plain = snake(self.text(symbol));
                let with = free(format!("with_{plain}"), &mut taken);
                let name = free(escaped(plain), &mut taken);
                let ty = self.field_type(field);
                out.line(&format!("{name} / {with}: {ty} = {place}, {};", field.width));
            }
            place += u32::from(field.width);
        }
        out.close("}");
        out.close("}");
    }

    fn field_type(&mut self, field: &BitsetField) -> String {
        match &field.ty {
            Some(ty) => self.owned(ty),
            None if field.width == 1 => self.owned(&Type::Basic(BasicType::Boolean)),
            None => number(field.width.into()).to_owned(),
        }
    }

    pub(super) fn native(&mut self, id: DefinitionId, out: &mut CodeWriter) {
        let (name, native) = (self.name(id), self.runtime("Native"));
        self.document(id, out);
        self.attributes(LintedItem::Type, out);
        out.line(&format!("pub type {name} = {native};"));
    }
}

pub(super) fn number(bits: u32) -> &'static str {
    match bits {
        ..=8 => "u8",
        9..=16 => "u16",
        17..=32 => "u32",
        _ => "u64",
    }
}
