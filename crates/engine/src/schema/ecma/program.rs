//! A pattern as instructions for the matcher. Repetitions are counted at run time, so the program
//! is never longer than the pattern, whatever its bounds are.

use regex_syntax::hir::ClassUnicode;

use super::{Assertion, Node, Regex};

/// A compiled pattern.
#[derive(Debug)]
pub(in crate::schema) struct Program {
    pub(super) instructions: Vec<Instruction>,
    pub(super) sets: Vec<Set>,
    /// The number of capturing groups.
    pub(super) groups: usize,
    /// The number of counted repetitions.
    pub(super) loops: usize,
    /// Whether a match can only begin at the start of the text.
    pub(super) is_anchored: bool,
}

/// One step of the matcher.
#[derive(Debug)]
pub(super) enum Instruction {
    /// The pattern, or the body of a look-around, has matched.
    Accept,
    /// Matches one character of a set.
    Set {
        set: usize,
        back: bool,
    },
    /// Matches several characters of one set.
    Run {
        set: usize,
        back: bool,
        min: u32,
        max: u32,
        greedy: bool,
    },
    /// Tries the next instruction, then the one at this index.
    Split(usize),
    Jump(usize),
    /// Stores the position as the start or end of a group.
    Save(usize),
    Assert(Assertion),
    /// Matches what one of the groups captured.
    Back {
        groups: Vec<usize>,
        back: bool,
    },
    /// Look-around: the following instructions must match here, or must not; continues at `end`.
    Look {
        negative: bool,
        end: usize,
    },
    /// Atomic group: the following instructions match in one way only; continues at `end`.
    Atomic {
        end: usize,
    },
    /// Starts counting a repetition.
    Begin(usize),
    /// Decides whether to run another iteration, which follows.
    Loop {
        counter: usize,
        min: u32,
        max: u32,
        greedy: bool,
        exit: usize,
    },
    /// Starts an iteration and resets the captures of the groups inside.
    Round {
        counter: usize,
        groups: (usize, usize),
    },
    /// Ends an iteration.
    Again {
        counter: usize,
        min: u32,
        head: usize,
    },
}

/// A set of characters with fast lookup.
#[derive(Debug)]
pub(super) struct Set {
    ascii: u128,
    ranges: Vec<(char, char)>,
}

impl Set {
    fn new(class: &ClassUnicode) -> Self {
        let ranges: Vec<_> = class
            .ranges()
            .iter()
            .map(|range| (range.start(), range.end()))
            .collect();
        let has = |byte: u8| {
            let character = char::from(byte);
            let mut ranges = ranges.iter();
            ranges.any(|&(start, end)| start <= character && character <= end)
        };
        let ascii = (0..128_u8)
            .filter(|byte| has(*byte))
            .fold(0, |bits, byte| bits | (1_u128 << byte));
        Self { ascii, ranges }
    }

    pub(super) fn has(&self, character: char) -> bool {
        if character.is_ascii() {
            return self.ascii >> (character as u32) & 1 == 1;
        }
        let after = self
            .ranges
            .partition_point(|&(start, _)| start <= character);
        after
            .checked_sub(1)
            .is_some_and(|index| character <= self.ranges[index].1)
    }
}

impl Program {
    /// Compiles a pattern.
    pub(in crate::schema) fn new(regex: &Regex) -> Self {
        let mut program = Self {
            instructions: Vec::new(),
            sets: Vec::new(),
            groups: regex.groups,
            loops: 0,
            is_anchored: is_anchored(&regex.root),
        };
        program.add(&regex.root, false);
        program.instructions.push(Instruction::Accept);
        program
    }

    fn add(&mut self, node: &Node, back: bool) {
        match node {
            Node::Empty => {}
            Node::Set(class) => {
                let set = self.set(class);
                self.instructions.push(Instruction::Set { set, back });
            }
            Node::Sequence(nodes) if back => {
                nodes.iter().rev().for_each(|node| self.add(node, back))
            }
            Node::Sequence(nodes) => nodes.iter().for_each(|node| self.add(node, back)),
            Node::Either(nodes) => self.add_alternatives(nodes, back),
            Node::Capture(number, node) => {
                let (first, second) = (
                    2 * number + usize::from(back),
                    2 * number + usize::from(!back),
                );
                self.instructions.push(Instruction::Save(first));
                self.add(node, back);
                self.instructions.push(Instruction::Save(second));
            }
            Node::Repeat {
                node,
                min,
                max,
                greedy,
                groups,
            } => {
                let max = max.unwrap_or(u32::MAX);
                if let Node::Set(class) = &**node {
                    let set = self.set(class);
                    self.instructions.push(Instruction::Run {
                        set,
                        back,
                        min: *min,
                        max,
                        greedy: *greedy,
                    });
                } else {
                    self.add_loop(node, back, (*min, max, *greedy), *groups);
                }
            }
            Node::Atomic(node) => {
                let place = self.open(Instruction::Atomic { end: 0 });
                self.add(node, back);
                self.close(place);
            }
            Node::Look {
                behind,
                negative,
                node,
            } => {
                let place = self.open(Instruction::Look {
                    negative: *negative,
                    end: 0,
                });
                self.add(node, *behind);
                self.close(place);
            }
            Node::Back(groups) => self.instructions.push(Instruction::Back {
                groups: groups.clone(),
                back,
            }),
            Node::Assert(assertion) => self.instructions.push(Instruction::Assert(*assertion)),
        }
    }

    fn set(&mut self, class: &ClassUnicode) -> usize {
        self.sets.push(Set::new(class));
        self.sets.len() - 1
    }

    fn open(&mut self, instruction: Instruction) -> usize {
        self.instructions.push(instruction);
        self.instructions.len() - 1
    }

    /// Ends the body of a look-around or an atomic group.
    fn close(&mut self, place: usize) {
        self.instructions.push(Instruction::Accept);
        let after = self.instructions.len();
        if let Instruction::Look { end, .. } | Instruction::Atomic { end } =
            &mut self.instructions[place]
        {
            *end = after;
        }
    }

    fn add_alternatives(&mut self, nodes: &[Node], back: bool) {
        let mut jumps = Vec::new();
        for (index, node) in nodes.iter().enumerate() {
            if index + 1 == nodes.len() {
                self.add(node, back);
                break;
            }
            let split = self.open(Instruction::Split(0));
            self.add(node, back);
            jumps.push(self.open(Instruction::Jump(0)));
            self.instructions[split] = Instruction::Split(self.instructions.len());
        }
        for jump in jumps {
            self.instructions[jump] = Instruction::Jump(self.instructions.len());
        }
    }

    fn add_loop(
        &mut self,
        node: &Node,
        back: bool,
        (min, max, greedy): (u32, u32, bool),
        groups: (usize, usize),
    ) {
        let counter = self.loops;
        self.loops += 1;
        self.instructions.push(Instruction::Begin(counter));
        let head = self.open(Instruction::Loop {
            counter,
            min,
            max,
            greedy,
            exit: 0,
        });
        self.instructions
            .push(Instruction::Round { counter, groups });
        self.add(node, back);
        self.instructions
            .push(Instruction::Again { counter, min, head });
        let after = self.instructions.len();
        if let Instruction::Loop { exit, .. } = &mut self.instructions[head] {
            *exit = after;
        }
    }
}

fn is_anchored(node: &Node) -> bool {
    match node {
        Node::Assert(Assertion::Start) => true,
        // A look-around consumes nothing, so the next node starts at the same position.
        Node::Sequence(nodes) => nodes
            .iter()
            .find(|node| !matches!(node, Node::Look { .. }))
            .is_some_and(is_anchored),
        Node::Either(nodes) => nodes.iter().all(is_anchored),
        Node::Capture(_, node) | Node::Atomic(node) => is_anchored(node),
        Node::Empty
        | Node::Set(_)
        | Node::Repeat { .. }
        | Node::Look { .. }
        | Node::Back(_)
        | Node::Assert(_) => false,
    }
}
