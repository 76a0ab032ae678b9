//! Resolution of bit masks and bit sets, and the size of enumerations in bits (IDL 4.2, 7.4.13).

use super::standard::AnnotatedItem;
use super::{DeclarationResolver, DeclarationSite, ReportedError, ScopeItem};
use crate::ast::{self, Annotation, BasicType, Declaration, Name};
use crate::diagnostic::Diagnostic;
use crate::model::{Bitmask, Bitset, BitsetField, DefinitionId, DefinitionKind, Type};
use crate::source::Span;

const MOST: u32 = 64;

impl DeclarationResolver<'_> {
    pub(super) fn bit_bound(&mut self, annotations: &[Annotation], usual: u32, most: u32, at: DeclarationSite) -> u32 {
        match self.annotated_number(annotations, "bit_bound", at) {
            Ok(Some((bits, span))) if bits == 0 || bits > most => {
                self.report(Diagnostic::error(span, format!("`@bit_bound` is 1 to {most} here, not {bits}")));
                usual
            }
            Ok(Some((bits, _))) => bits,
            Ok(None) | Err(ReportedError) => usual,
        }
    }

    pub(super) fn bitmask(
        &mut self,
        name: Name,
        flags: &[ast::BitmaskFlag],
        declaration: &Declaration,
        at: DeclarationSite,
    ) {
        let bound = self.bit_bound(&declaration.annotations, 32, MOST, at);
        if flags.is_empty() {
            self.report(Diagnostic::error(name.span, "a bit mask needs a flag"));
        }
        let id =
            self.add(at, name, declaration.first_token, DefinitionKind::Bitmask(Bitmask { bound, flags: Vec::new() }));
        self.declare(at.scope, name, ScopeItem::Definition(id));
        self.list(at, id);
        let scope = self.open_scope(at.scope, Some(id));
        let mut taken: Vec<(u32, Span)> = Vec::new();
        let mut placed = Vec::new();
        for flag in flags {
            self.check_annotations(&flag.annotations, AnnotatedItem::Flag, at);
            self.declare(scope, flag.name, ScopeItem::Member);
            let next = taken.last().map_or(0, |(last, _)| last + 1);
            let given = self.annotated_number(&flag.annotations, "position", at);
            let (position, span) = given.ok().flatten().unwrap_or((next, flag.name.span));
            if position >= bound {
                let message = format!("position {position} is outside of the {bound} bits of the bit mask");
                let help = "give the bit mask a larger `@bit_bound`, up to 64";
                self.report(Diagnostic::error(span, message).help(help));
                break;
            }
            if let Some((_, first)) = taken.iter().find(|(other, _)| *other == position) {
                let diagnostic = Diagnostic::error(span, format!("position {position} is taken")).label("the second");
                self.report(diagnostic.related(*first, "the first"));
            }
            taken.push((position, span));
            placed.push((flag.name.symbol, u8::try_from(position).unwrap_or(0)));
        }
        if let DefinitionKind::Bitmask(known) = &mut self.model.get_mut(id).kind {
            known.flags = placed;
        }
    }

    pub(super) fn bitset(&mut self, bitset: &ast::Bitset, declaration: &Declaration, at: DeclarationSite) {
        let base = bitset.base.as_ref().and_then(|base| self.bitset_base(base, at));
        let empty = Bitset { base, fields: Vec::new(), bits: 0 };
        let id = self.add(at, bitset.name, declaration.first_token, DefinitionKind::Bitset(empty));
        self.declare(at.scope, bitset.name, ScopeItem::Definition(id));
        self.list(at, id);
        let inner = DeclarationSite { scope: self.open_scope(at.scope, Some(id)), parent: Some(id) };
        let mut bits = base.map_or(0, |base| match &self.model.get(base).kind {
            DefinitionKind::Bitset(base) => base.bits,
            _ => 0,
        });
        let mut fields = Vec::new();
        for field in &bitset.fields {
            let Ok(width) = self.size(&field.width, inner) else { continue };
            if width > MOST {
                let message = format!("a bit field has at most {MOST} bits, not {width}");
                self.report(Diagnostic::error(field.width.span, message));
                continue;
            }
            let ty = field.ty.as_ref().map(|ty| (self.ty(ty, inner), ty.span));
            if let Some((ty, span)) = &ty {
                self.check_field(ty, width, *span);
            }
            let ty = ty.map(|(ty, _)| ty);
            bits += width * u32::try_from(field.names.len().max(1)).unwrap_or(u32::MAX);
            let width = u8::try_from(width).unwrap_or(0);
            if field.names.is_empty() {
                fields.push(BitsetField { name: None, span: field.width.span, width, ty: ty.clone() });
            }
            for name in &field.names {
                self.declare(inner.scope, *name, ScopeItem::Member);
                fields.push(BitsetField { name: Some(name.symbol), span: name.span, width, ty: ty.clone() });
            }
            if bits > MOST {
                let message = format!("a bit set has at most {MOST} bits in total, this one has {bits}");
                self.report(Diagnostic::error(field.width.span, message));
                break;
            }
        }
        let named = |field: &BitsetField| field.name.map(|name| (name, field.span));
        if let Some(base) = base {
            let inherited: Vec<_> = self.model.bit_fields(base).into_iter().filter_map(named).collect();
            self.check_members_differ(&inherited, fields.iter().filter_map(named));
        }
        if let DefinitionKind::Bitset(known) = &mut self.model.get_mut(id).kind {
            (known.fields, known.bits) = (fields, bits.min(MOST));
        }
    }

    fn bitset_base(&mut self, name: &ast::ScopedName, at: DeclarationSite) -> Option<DefinitionId> {
        let id = self.look_up(name, at.scope, false).ok()?;
        if matches!(self.model.get(id).kind, DefinitionKind::Bitset(_)) {
            return self.check_chain(id, name.span);
        }
        let (what, place) = (self.described(id), self.model.get(id).span);
        self.report(Diagnostic::error(name.span, format!("{what} is not a bit set")).related(place, "declared here"));
        None
    }

    fn check_field(&mut self, ty: &Type, width: u32, span: Span) {
        let room = match self.model.unaliased(ty) {
            Type::Basic(BasicType::Boolean) => 1,
            Type::Basic(BasicType::Octet | BasicType::Int8 | BasicType::UInt8) => 8,
            Type::Basic(BasicType::Short | BasicType::UShort) => 16,
            Type::Basic(BasicType::Long | BasicType::ULong) => 32,
            Type::Basic(BasicType::LongLong | BasicType::ULongLong) => 64,
            Type::Faulty => return,
            _ => 0,
        };
        if room == 0 {
            let message = "a bit field is `boolean`, `octet` or of an integer type";
            self.report(Diagnostic::error(span, message));
        } else if width > room {
            let message = format!("the type has {room} bits, the field {width}");
            self.report(Diagnostic::error(span, message).help("give it a larger type, or none"));
        }
    }
}
