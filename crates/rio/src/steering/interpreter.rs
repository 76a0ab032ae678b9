//! An interpreter of the steering program for tests. It checks every access against the bounds of
//! the accessed object.

use std::collections::{BTreeMap, BTreeSet};

use corelane_sys::bpf::assembler::opcode;
use corelane_sys::bpf::{Arithmetic, Condition, Helper, Instruction, Program, Register, Width, XdpAction};

/// Maximum number of executed instructions. The steering program has fewer instructions and no
/// backward jump, so it does not reach the maximum.
const MAX_STEPS: usize = 4096;
const STACK: usize = 512;

/// A violation of a rule of the kernel's verifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProgramFault(pub(crate) String);

#[derive(Clone, Debug)]
pub(crate) enum ProgramTable {
    Array {
        value_size: usize,
        values: Vec<u8>,
    },
    /// Values by key: `places` maps a key to an index in `values`.
    Hash {
        key_size: usize,
        value_size: usize,
        places: BTreeMap<Vec<u8>, usize>,
        values: Vec<u8>,
    },
    Targets(BTreeSet<u32>),
    /// Indices of other tables.
    Tables(Vec<usize>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterValue {
    Unset,
    Scalar(u64),
    Context,
    Frame(i64),
    FrameEnd,
    Stack(i64),
    Table(usize),
    /// An address `offset` bytes into the value at index `place` of a table.
    Entry {
        table: usize,
        place: usize,
        offset: i64,
    },
}

pub(crate) struct Interpreter<'r> {
    program: &'r Program,
    tables: &'r mut [ProgramTable],
    frame: &'r [u8],
    queue: u32,
    now: u64,
    registers: [RegisterValue; 11],
    stack: [Option<u8>; STACK],
    redirect: Option<(usize, u32)>,
}

/// Result of a run: the action, and the table and index of the last successful redirection.
pub(crate) type ProgramResult = (u64, Option<(usize, u32)>);

impl<'r> Interpreter<'r> {
    pub(crate) fn new(
        program: &'r Program,
        tables: &'r mut [ProgramTable],
        frame: &'r [u8],
        queue: u32,
        now: u64,
    ) -> Self {
        let mut registers = [RegisterValue::Unset; 11];
        registers[1] = RegisterValue::Context;
        registers[10] = RegisterValue::Stack(0);
        Self { program, tables, frame, queue, now, registers, stack: [None; STACK], redirect: None }
    }

    pub(crate) fn run(self) -> Result<ProgramResult, ProgramFault> {
        self.run_counted().map(|(result, _)| result)
    }

    /// As [`run`](Self::run), with the number of executed instructions. A call of a helper counts
    /// as one, whatever the helper does.
    pub(crate) fn run_counted(mut self) -> Result<(ProgramResult, usize), ProgramFault> {
        let mut place = 0;
        for steps in 1..=MAX_STEPS {
            let instruction = *self.program.instructions().get(place).ok_or_else(|| fault("runs over the end"))?;
            if instruction.opcode == opcode::CLASS_JUMP | opcode::JUMP_EXIT {
                return Ok(((self.scalar(0)?, self.redirect), steps));
            }
            let jump = self.step(place, instruction)?;
            place = usize::try_from(i64::try_from(place).unwrap_or(0) + 1 + i64::from(jump))
                .map_err(|_| fault("jumps before the beginning"))?;
        }
        Err(fault("does not end"))
    }

    /// Executes one instruction. Returns the distance of its jump in instructions, counted from the
    /// next instruction. Without a jump, the result is 0; after the load of a map, which has the
    /// size of two instructions, it is 1.
    fn step(&mut self, place: usize, instruction: Instruction) -> Result<i16, ProgramFault> {
        let Instruction { opcode: code, destination, offset, .. } = instruction;
        match code & opcode::CLASS_MASK {
            opcode::CLASS_LOAD_IMMEDIATE => {
                let map = self.program.map_loaded_at(place).ok_or_else(|| fault("loads no map"))?;
                self.set(destination, RegisterValue::Table(map.0))?;
                return Ok(1);
            }
            opcode::CLASS_LOAD => {
                let from = self.register(instruction.source)?;
                let value = self.load(width(code)?, from, offset)?;
                self.set(destination, value)?;
            }
            opcode::CLASS_STORE if code & opcode::MODE_MASK == opcode::MODE_ATOMIC => {
                let addend = self.scalar(instruction.source)?;
                let base = self.register(destination)?;
                if code & opcode::WIDTH_MASK != opcode::WIDTH_MASK || instruction.immediate != 0 {
                    return Err(fault("unknown atomic operation"));
                }
                if !matches!(base, RegisterValue::Entry { .. }) {
                    return Err(fault("adds atomically to no entry"));
                }
                let sum = little(&self.read(base, offset, Width::Double.bytes())?).wrapping_add(addend);
                self.store(Width::Double, base, offset, sum)?;
            }
            opcode::CLASS_STORE => {
                let value = self.scalar(instruction.source)?;
                self.store(width(code)?, self.register(destination)?, offset, value)?;
            }
            opcode::CLASS_STORE_IMMEDIATE => {
                let value = sign_extend(instruction.immediate);
                self.store(width(code)?, self.register(destination)?, offset, value)?;
            }
            opcode::CLASS_ARITHMETIC_32 => self.swap(instruction)?,
            opcode::CLASS_ARITHMETIC => self.compute(instruction)?,
            opcode::CLASS_JUMP if code & opcode::OPERATION_MASK == opcode::JUMP_CALL => {
                self.call(instruction.immediate)?
            }
            opcode::CLASS_JUMP => return Ok(if self.jumps(instruction)? { offset } else { 0 }),
            _ => return Err(fault("unknown class")),
        }
        Ok(0)
    }

    fn swap(&mut self, instruction: Instruction) -> Result<(), ProgramFault> {
        let is_known =
            instruction.opcode == opcode::CLASS_ARITHMETIC_32 | opcode::ARITHMETIC_SWAP | opcode::SOURCE_REGISTER;
        if !is_known || instruction.immediate != 16 {
            return Err(fault("unknown operation on 32 bits"));
        }
        let bytes = self.scalar(instruction.destination)?.to_le_bytes();
        let swapped = u16::from_le_bytes([bytes[0], bytes[1]]).to_be();
        self.set(instruction.destination, RegisterValue::Scalar(swapped.into()))
    }

    fn compute(&mut self, instruction: Instruction) -> Result<(), ProgramFault> {
        let right = self.operand(instruction)?;
        let operation = instruction.opcode & opcode::OPERATION_MASK;
        if operation == opcode::ARITHMETIC_MOVE {
            return self.set(instruction.destination, right);
        }
        let left = self.register(instruction.destination)?;
        let result = match (left, right) {
            (RegisterValue::Scalar(left), RegisterValue::Scalar(right)) => {
                RegisterValue::Scalar(arithmetic(operation, left, right)?)
            }
            (RegisterValue::Frame(at), RegisterValue::Scalar(right)) if operation == Arithmetic::Add as u8 => {
                RegisterValue::Frame(at.wrapping_add(right.cast_signed()))
            }
            (RegisterValue::Stack(at), RegisterValue::Scalar(right)) if operation == Arithmetic::Add as u8 => {
                RegisterValue::Stack(at.wrapping_add(right.cast_signed()))
            }
            _ => return Err(fault("arithmetic on pointers")),
        };
        self.set(instruction.destination, result)
    }

    fn jumps(&self, instruction: Instruction) -> Result<bool, ProgramFault> {
        let operation = instruction.opcode & opcode::OPERATION_MASK;
        if operation == opcode::JUMP_ALWAYS {
            return Ok(true);
        }
        let length = i64::try_from(self.frame.len()).unwrap_or(i64::MAX).cast_unsigned();
        let (left, right) = match (self.register(instruction.destination)?, self.operand(instruction)?) {
            (RegisterValue::Scalar(left), RegisterValue::Scalar(right)) => (left, right),
            // Frame pointers are compared as offsets. A negative offset is a fault.
            (RegisterValue::Frame(at), RegisterValue::FrameEnd) if at >= 0 => (at.cast_unsigned(), length),
            // A pointer to an entry or a table is never 0.
            (RegisterValue::Entry { .. } | RegisterValue::Table(_), RegisterValue::Scalar(0)) => (1, 0),
            _ => return Err(fault("comparison of pointers")),
        };
        let is = |condition: Condition| operation == condition as u8;
        Ok(match () {
            () if is(Condition::Equal) => left == right,
            () if is(Condition::NotEqual) => left != right,
            () if is(Condition::Greater) => left > right,
            () if is(Condition::GreaterOrEqual) => left >= right,
            () if is(Condition::Less) => left < right,
            () if is(Condition::LessOrEqual) => left <= right,
            () if is(Condition::AnyBit) => left & right != 0,
            () => return Err(fault("unknown condition")),
        })
    }

    fn call(&mut self, helper: i32) -> Result<(), ProgramFault> {
        let result = match () {
            () if helper == Helper::MapLookup as i32 => self.look_up()?,
            () if helper == Helper::MonotonicTime as i32 => RegisterValue::Scalar(self.now),
            () if helper == Helper::XdpFrameLength as i32 && self.registers[1] == RegisterValue::Context => {
                RegisterValue::Scalar(u64::try_from(self.frame.len()).unwrap_or(u64::MAX))
            }
            () if helper == Helper::RedirectMap as i32 => RegisterValue::Scalar(self.redirect()?),
            () => return Err(fault("unknown helper")),
        };
        self.registers[1..=5].fill(RegisterValue::Unset);
        self.registers[0] = result;
        Ok(())
    }

    fn look_up(&self) -> Result<RegisterValue, ProgramFault> {
        let (RegisterValue::Table(table), key) = (self.registers[1], self.registers[2]) else {
            return Err(fault("looks up in no table"));
        };
        let key_size = match self.table(table)? {
            ProgramTable::Hash { key_size, .. } => *key_size,
            _ => 4,
        };
        let key = self.read(key, 0, key_size)?;
        let index = usize::try_from(little(&key)).unwrap_or(usize::MAX);
        let place = match self.table(table)? {
            ProgramTable::Array { value_size, values } => (index < values.len() / value_size).then_some(index),
            ProgramTable::Hash { places, .. } => places.get(&key).copied(),
            ProgramTable::Tables(tables) => {
                return Ok(tables.get(index).map_or(RegisterValue::Scalar(0), |table| RegisterValue::Table(*table)));
            }
            ProgramTable::Targets(_) => return Err(fault("looks up a target")),
        };
        Ok(place.map_or(RegisterValue::Scalar(0), |place| RegisterValue::Entry { table, place, offset: 0 }))
    }

    fn redirect(&mut self) -> Result<u64, ProgramFault> {
        let RegisterValue::Table(table) = self.registers[1] else { return Err(fault("redirects to no table")) };
        let (index, flags) = (self.scalar(2)?, self.scalar(3)?);
        let ProgramTable::Targets(targets) = self.table(table)? else {
            return Err(fault("redirects to a plain table"));
        };
        let index = u32::try_from(index).map_err(|_| fault("redirects to an index of 64 bits"))?;
        if !targets.contains(&index) {
            return Ok(flags & 3);
        }
        self.redirect = Some((table, index));
        Ok(u64::from(XdpAction::REDIRECT.unsigned_abs()))
    }

    fn load(&self, width: Width, base: RegisterValue, offset: i16) -> Result<RegisterValue, ProgramFault> {
        if base == RegisterValue::Context {
            return match (width, offset) {
                (Width::Word, 0) => Ok(RegisterValue::Frame(0)),
                (Width::Word, 4) => Ok(RegisterValue::FrameEnd),
                (Width::Word, 16) => Ok(RegisterValue::Scalar(self.queue.into())),
                _ => Err(fault("unknown field of the context")),
            };
        }
        Ok(RegisterValue::Scalar(little(&self.read(base, offset, width.bytes())?)))
    }

    fn read(&self, base: RegisterValue, offset: i16, length: usize) -> Result<Vec<u8>, ProgramFault> {
        let offset = i64::from(offset);
        match base {
            RegisterValue::Frame(at) => bytes(self.frame, at + offset, length).map(<[u8]>::to_vec),
            RegisterValue::Stack(at) => {
                let from = bytes(&self.stack, at + offset + stack_size(), length)?;
                from.iter().copied().collect::<Option<_>>().ok_or_else(|| fault("reads what it did not write"))
            }
            RegisterValue::Entry { table, place, offset: at } => {
                bytes(self.entry(table, place)?, at + offset, length).map(<[u8]>::to_vec)
            }
            _ => Err(fault("reads through no pointer")),
        }
    }

    fn store(&mut self, width: Width, base: RegisterValue, offset: i16, value: u64) -> Result<(), ProgramFault> {
        let (value, length, offset) = (value.to_le_bytes(), width.bytes(), i64::from(offset));
        let value = value.get(..length).unwrap_or_default();
        match base {
            RegisterValue::Stack(at) => {
                let into = bytes_mut(&mut self.stack, at + offset + stack_size(), length)?;
                into.iter_mut().zip(value).for_each(|(into, byte)| *into = Some(*byte));
            }
            RegisterValue::Entry { table, place, offset: at } => {
                let into = bytes_mut(self.entry_mut(table, place)?, at + offset, length)?;
                into.copy_from_slice(value);
            }
            _ => return Err(fault("writes through no pointer")),
        }
        Ok(())
    }

    fn table(&self, table: usize) -> Result<&ProgramTable, ProgramFault> {
        self.tables.get(table).ok_or_else(|| fault("no such table"))
    }

    fn entry(&self, table: usize, place: usize) -> Result<&[u8], ProgramFault> {
        let (ProgramTable::Array { value_size, values } | ProgramTable::Hash { value_size, values, .. }) =
            self.table(table)?
        else {
            return Err(fault("a table without values"));
        };
        values.chunks_exact(*value_size).nth(place).ok_or_else(|| fault("an entry outside its table"))
    }

    fn entry_mut(&mut self, table: usize, place: usize) -> Result<&mut [u8], ProgramFault> {
        let (ProgramTable::Array { value_size, values } | ProgramTable::Hash { value_size, values, .. }) =
            self.tables.get_mut(table).ok_or_else(|| fault("no such table"))?
        else {
            return Err(fault("a table without values"));
        };
        values.chunks_exact_mut(*value_size).nth(place).ok_or_else(|| fault("an entry outside its table"))
    }

    fn operand(&self, instruction: Instruction) -> Result<RegisterValue, ProgramFault> {
        if instruction.opcode & opcode::SOURCE_REGISTER != 0 {
            return self.register(instruction.source);
        }
        Ok(RegisterValue::Scalar(sign_extend(instruction.immediate)))
    }

    fn register(&self, number: u8) -> Result<RegisterValue, ProgramFault> {
        match self.registers.get(usize::from(number)) {
            None | Some(RegisterValue::Unset) => Err(fault("reads a register without value")),
            Some(value) => Ok(*value),
        }
    }

    fn scalar(&self, number: u8) -> Result<u64, ProgramFault> {
        match self.register(number)? {
            RegisterValue::Scalar(value) => Ok(value),
            _ => Err(fault("a pointer in place of a number")),
        }
    }

    fn set(&mut self, number: u8, value: RegisterValue) -> Result<(), ProgramFault> {
        match Register::from_number(number) {
            None | Some(Register::R10) => Err(fault("writes a register that it must not")),
            Some(register) => {
                self.registers[register as usize] = value;
                Ok(())
            }
        }
    }
}

fn fault(reason: &str) -> ProgramFault {
    ProgramFault(reason.to_owned())
}

fn stack_size() -> i64 {
    i64::try_from(STACK).unwrap_or(0)
}

fn sign_extend(constant: i32) -> u64 {
    i64::from(constant).cast_unsigned()
}

/// Reads a little-endian number. The machines that run the tests have this byte order.
fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn width(code: u8) -> Result<Width, ProgramFault> {
    if code & opcode::MODE_MASK != opcode::MODE_MEMORY {
        return Err(fault("unknown addressing mode"));
    }
    Ok(match code & opcode::WIDTH_MASK {
        0x00 => Width::Word,
        0x08 => Width::Half,
        0x10 => Width::Byte,
        _ => Width::Double,
    })
}

fn arithmetic(operation: u8, left: u64, right: u64) -> Result<u64, ProgramFault> {
    let is = |arithmetic: Arithmetic| operation == arithmetic as u8;
    let count = u32::try_from(right & 63).unwrap_or(0);
    Ok(match () {
        () if is(Arithmetic::Add) => left.wrapping_add(right),
        () if is(Arithmetic::Subtract) => left.wrapping_sub(right),
        () if is(Arithmetic::Multiply) => left.wrapping_mul(right),
        () if is(Arithmetic::Or) => left | right,
        () if is(Arithmetic::And) => left & right,
        () if is(Arithmetic::Xor) => left ^ right,
        () if is(Arithmetic::ShiftLeft) => left << count,
        () if is(Arithmetic::ShiftRight) => left >> count,
        () => return Err(fault("unknown arithmetic")),
    })
}

fn bytes<T>(object: &[T], at: i64, length: usize) -> Result<&[T], ProgramFault> {
    let at = usize::try_from(at).map_err(|_| fault("reads before an object"))?;
    object.get(at..).and_then(|rest| rest.get(..length)).ok_or_else(|| fault("reads behind an object"))
}

fn bytes_mut<T>(object: &mut [T], at: i64, length: usize) -> Result<&mut [T], ProgramFault> {
    let at = usize::try_from(at).map_err(|_| fault("writes before an object"))?;
    object.get_mut(at..).and_then(|rest| rest.get_mut(..length)).ok_or_else(|| fault("writes behind an object"))
}

#[cfg(test)]
mod tests {
    use corelane_sys::bpf::Assembler;
    use corelane_sys::bpf::Register::{R0, R1, R2, R3, R10};

    use super::*;

    fn run(frame: &[u8], write: impl FnOnce(&mut Assembler)) -> Result<u64, ProgramFault> {
        let mut asm = Assembler::new();
        write(&mut asm);
        let program = asm.finish().unwrap();
        Interpreter::new(&program, &mut [], frame, 0, 0).run().map(|(action, _)| action)
    }

    #[test]
    fn a_read_behind_the_frame_is_found() {
        let read = |frame: &[u8]| {
            run(frame, |asm| {
                asm.load(Width::Word, R2, R1, 0).load(Width::Half, R0, R2, 3).exit();
            })
        };
        assert_eq!(read(&[1, 2, 3, 4, 5]), Ok(0x0504));
        assert_eq!(read(&[1, 2, 3, 4]), Err(fault("reads behind an object")));
    }

    #[test]
    fn values_that_were_never_written_are_found() {
        let unset = run(&[], |asm| {
            asm.set(R0, R3).exit();
        });
        assert_eq!(unset, Err(fault("reads a register without value")));
        let stack = run(&[], |asm| {
            asm.store(Width::Word, R10, -8, 0).load(Width::Double, R0, R10, -8).exit();
        });
        assert_eq!(stack, Err(fault("reads what it did not write")));
        let pointer = run(&[], |asm| {
            asm.set(R0, R10).exit();
        });
        assert_eq!(pointer, Err(fault("a pointer in place of a number")));
    }

    #[test]
    fn a_program_without_end_is_found() {
        let endless = run(&[], |asm| {
            let start = asm.label();
            asm.bind(start).jump(start);
        });
        assert_eq!(endless, Err(fault("does not end")));
    }
}
