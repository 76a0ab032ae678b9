//! TypeCodes of the types in an IDL file.

use std::collections::HashMap;
use std::path::Path;

use corelane::TypeCode;
use corelane_idl::ast::{BasicType, InterfaceFlavor, ValueFlavor};
use corelane_idl::compile::{Compilation, CompileOptions};
use corelane_idl::model::{ConstantValue, DefinitionId, DefinitionKind, Member, Type, Union};
use corelane_wire::typecode::{UnionMember, ValueMember};

pub(crate) fn compile(file: &Path, options: &CompileOptions) -> Result<Compilation, String> {
    let compilation = Compilation::from_file(file, options);
    let compilation = compilation.map_err(|error| format!("cannot read `{}`: {error}", file.display()))?;
    if compilation.is_accepted() {
        return Ok(compilation);
    }
    Err(format!("`{}` is refused\n\n{}", file.display(), compilation.diagnostics.render(&compilation.sources, false)))
}

pub(crate) struct Types<'c> {
    compilation: &'c Compilation,
    /// Definitions whose TypeCodes are under construction. Inside its own TypeCode, a definition
    /// becomes a recursive TypeCode.
    open: Vec<DefinitionId>,
    /// The complete TypeCodes. A TypeCode that refers to a definition in `open` is not stored.
    made: HashMap<DefinitionId, TypeCode>,
    values: u32,
}

impl<'c> Types<'c> {
    pub(crate) fn new(compilation: &'c Compilation) -> Self {
        Types { compilation, open: Vec::new(), made: HashMap::new(), values: 0 }
    }

    pub(crate) fn of_values(&mut self) -> Vec<TypeCode> {
        let model = &self.compilation.model;
        let is_value =
            |id: &DefinitionId| matches!(model.get(*id).kind, DefinitionKind::Value(_) | DefinitionKind::ValueBox(_));
        model.definition_ids().filter(is_value).filter_map(|id| self.of_definition(id).ok()).collect()
    }

    pub(crate) fn number_value(&mut self) -> u32 {
        self.values += 1;
        self.values
    }

    pub(crate) fn name(&self, id: DefinitionId) -> &'c str {
        self.compilation.symbols.text(self.compilation.model.get(id).name)
    }

    pub(crate) fn repository_id(&self, id: DefinitionId) -> String {
        self.compilation.model.repository_id(id, &self.compilation.symbols)
    }

    pub(crate) fn scoped_name(&self, id: DefinitionId) -> String {
        let path = self.compilation.model.path(id);
        path.into_iter().map(|part| self.name(part)).collect::<Vec<_>>().join("::")
    }

    /// Returns the definitions with this name, with or without its scopes. After `::` the name has
    /// all scopes.
    pub(crate) fn named(&self, name: &str) -> Vec<DefinitionId> {
        let ids = self.compilation.model.definition_ids();
        match name.strip_prefix("::") {
            Some(name) => ids.filter(|id| self.scoped_name(*id) == name).collect(),
            None => ids.filter(|id| self.name(*id) == name || self.scoped_name(*id) == name).collect(),
        }
    }

    pub(crate) fn text_of(&self, ty: &Type) -> String {
        let bounded = |bound: &Option<u32>| bound.map_or_else(String::new, |bound| format!(", {bound}"));
        match ty {
            Type::Basic(basic) => basic.text().to_owned(),
            Type::String(wide, bound) => {
                let name = if *wide { "wstring" } else { "string" };
                bound.map_or_else(|| name.to_owned(), |bound| format!("{name}<{bound}>"))
            }
            Type::Fixed(digits, scale) => format!("fixed<{digits}, {scale}>"),
            Type::Sequence(element, bound) => format!("sequence<{}{}>", self.text_of(element), bounded(bound)),
            Type::Map(pair, bound) => {
                format!("map<{}, {}{}>", self.text_of(&pair.0), self.text_of(&pair.1), bounded(bound))
            }
            Type::Array(element, dimensions) => {
                let dimensions: String = dimensions.iter().map(|length| format!("[{length}]")).collect();
                self.text_of(element) + &dimensions
            }
            Type::Named(id) => self.scoped_name(*id),
            Type::FixedConstant => "fixed".to_owned(),
            Type::Faulty => "(faulty)".to_owned(),
        }
    }

    pub(crate) fn of(&mut self, ty: &Type) -> Result<TypeCode, String> {
        let text = |error: corelane::TypeCodeError| error.to_string();
        match ty {
            Type::Basic(basic) => Ok(of_basic(*basic)),
            Type::String(false, bound) => Ok(TypeCode::string(bound.unwrap_or(0))),
            Type::String(true, bound) => Ok(TypeCode::wstring(bound.unwrap_or(0))),
            Type::Fixed(digits, scale) => TypeCode::fixed(u16::from(*digits), i16::from(*scale)).map_err(text),
            Type::Sequence(element, bound) => TypeCode::sequence(self.of(element)?, bound.unwrap_or(0)).map_err(text),
            Type::Array(element, dimensions) => {
                let mut type_code = self.of(element)?;
                for length in dimensions.iter().rev() {
                    type_code = TypeCode::array(type_code, *length).map_err(text)?;
                }
                Ok(type_code)
            }
            Type::Named(id) => self.of_definition(*id),
            Type::Map(pair, bound) => {
                TypeCode::map(self.of(&pair.0)?, self.of(&pair.1)?, bound.unwrap_or(0)).map_err(text)
            }
            Type::FixedConstant | Type::Faulty => Err("this type has no TypeCode".to_owned()),
        }
    }

    pub(crate) fn of_definition(&mut self, id: DefinitionId) -> Result<TypeCode, String> {
        let repository_id = self.repository_id(id);
        if self.open.contains(&id) {
            return Ok(TypeCode::recursive(&repository_id));
        }
        if let Some(made) = self.made.get(&id) {
            return Ok(made.clone());
        }
        self.open.push(id);
        let result = self.make(id, &repository_id);
        self.open.pop();
        if let Ok(made) = &result
            && made.is_complete()
        {
            self.made.insert(id, made.clone());
        }
        result
    }

    fn make(&mut self, id: DefinitionId, repository_id: &str) -> Result<TypeCode, String> {
        let (name, compilation) = (self.name(id), self.compilation);
        let made = match &compilation.model.get(id).kind {
            DefinitionKind::Typedef(ty) => TypeCode::alias(repository_id, name, self.of(ty)?),
            DefinitionKind::Struct(structure) => {
                let members = self.members(&compilation.model.all_members(structure))?;
                TypeCode::structure(repository_id, name, members)
            }
            DefinitionKind::Bitmask(mask) => return Ok(of_bits(mask.bound)),
            DefinitionKind::Bitset(set) => return Ok(of_bits(set.bits)),
            DefinitionKind::Exception(structure) => {
                TypeCode::exception(repository_id, name, self.members(&structure.members)?)
            }
            DefinitionKind::Enum(enumerators) => {
                TypeCode::enumeration(repository_id, name, enumerators.iter().map(|one| self.name(*one)))
            }
            DefinitionKind::Union(union) => {
                let discriminator = self.of(&union.discriminator)?;
                TypeCode::union(repository_id, name, discriminator, self.arms(union)?)
            }
            DefinitionKind::Interface(interface) => {
                let kind = match interface.flavor {
                    InterfaceFlavor::Remote => corelane::TypeCodeKind::ObjRef,
                    InterfaceFlavor::Local => corelane::TypeCodeKind::LocalInterface,
                    InterfaceFlavor::Abstract => corelane::TypeCodeKind::AbstractInterface,
                };
                TypeCode::interface(kind, repository_id, name)
            }
            DefinitionKind::ValueBox(ty) => TypeCode::value_box(repository_id, name, self.of(ty)?),
            DefinitionKind::Value(value) => {
                let state = value.state.iter().map(|(member, public)| {
                    let name = self.compilation.symbols.text(member.name).to_owned();
                    Ok(ValueMember { name, ty: self.of(&member.ty)?, is_public: *public })
                });
                let state = state.collect::<Result<Vec<_>, String>>()?;
                let modifier = match value.flavor {
                    ValueFlavor::Custom => 1,
                    ValueFlavor::Abstract => 2,
                    ValueFlavor::Plain => i16::from(value.is_truncatable) * 3,
                };
                let concrete = |base: &&DefinitionId| match &compilation.model.get(**base).kind {
                    DefinitionKind::Value(base) => base.flavor != ValueFlavor::Abstract,
                    _ => false,
                };
                let base = value.bases.iter().find(concrete).map(|base| self.of_definition(*base)).transpose()?;
                TypeCode::value(repository_id, name, modifier, base, state)
            }
            DefinitionKind::Native if name == "TypeCode" => return Ok(TypeCode::TYPE_CODE),
            _ => return Err(format!("`{name}` is not a type that can be sent")),
        };
        made.map_err(|error| format!("`{name}`: {error}"))
    }

    fn members(&mut self, members: &[Member]) -> Result<Vec<(String, TypeCode)>, String> {
        let each = members.iter().map(|member| {
            let name = self.compilation.symbols.text(member.name).to_owned();
            Ok((name, self.of(&member.ty)?))
        });
        each.collect()
    }

    fn arms(&mut self, union: &Union) -> Result<Vec<UnionMember>, String> {
        let mut arms = Vec::new();
        for arm in &union.arms {
            let name = self.compilation.symbols.text(arm.member.name).to_owned();
            let ty = self.of(&arm.member.ty)?;
            for label in &arm.labels {
                arms.push(UnionMember { label: Some(self.label(label)), name: name.clone(), ty: ty.clone() });
            }
            if arm.is_default {
                arms.push(UnionMember { label: None, name, ty });
            }
        }
        Ok(arms)
    }

    fn label(&self, label: &ConstantValue) -> i128 {
        match label {
            ConstantValue::Integer(number) => *number,
            ConstantValue::Character(character) => u32::from(*character).into(),
            ConstantValue::Boolean(value) => (*value).into(),
            ConstantValue::Enumerator(id) => match self.compilation.model.get(*id).kind {
                DefinitionKind::Enumerator(_, number) => number.into(),
                _ => 0,
            },
            _ => 0,
        }
    }
}

fn of_bits(bits: u32) -> TypeCode {
    match bits {
        0..=8 => TypeCode::OCTET,
        9..=16 => TypeCode::USHORT,
        17..=32 => TypeCode::ULONG,
        _ => TypeCode::ULONG_LONG,
    }
}

fn of_basic(basic: BasicType) -> TypeCode {
    match basic {
        BasicType::Void => TypeCode::VOID,
        BasicType::Short => TypeCode::SHORT,
        BasicType::UShort => TypeCode::USHORT,
        BasicType::Long => TypeCode::LONG,
        BasicType::ULong => TypeCode::ULONG,
        BasicType::LongLong => TypeCode::LONG_LONG,
        BasicType::ULongLong => TypeCode::ULONG_LONG,
        BasicType::Int8 | BasicType::UInt8 | BasicType::Octet => TypeCode::OCTET,
        BasicType::Float => TypeCode::FLOAT,
        BasicType::Double => TypeCode::DOUBLE,
        BasicType::LongDouble => TypeCode::LONG_DOUBLE,
        BasicType::Char => TypeCode::CHAR,
        BasicType::WChar => TypeCode::WCHAR,
        BasicType::Boolean => TypeCode::BOOLEAN,
        BasicType::Any => TypeCode::ANY,
        BasicType::Object => TypeCode::OBJECT,
        BasicType::ValueBase => TypeCode::VALUE_BASE,
    }
}
