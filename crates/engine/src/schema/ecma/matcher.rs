//! Runs a program over a text by backtracking. Every step is charged to the budget of the check,
//! the backtracking stack is bounded, and only nested look-arounds recurse.

use super::Assertion;
use super::program::{Instruction, Program, Set};
use crate::schema::budget;

/// Steps that are charged together.
const STRIDE: u64 = 64;
/// The maximum number of entries on the backtracking stack.
const MOST_UNDONE: usize = 1 << 18;
/// Stands for no position.
const NONE: usize = usize::MAX;

impl Program {
    /// Returns whether the pattern matches anywhere in a text; ends the check if that costs too
    /// much.
    pub(in crate::schema) fn is_match(&self, text: &str) -> bool {
        let mut matcher = Matcher {
            program: self,
            text,
            slots: vec![NONE; 2 * (self.groups + 1)],
            counters: vec![(0, NONE); self.loops],
            undo: Vec::new(),
            steps: 0,
        };
        let matches = matcher.search();
        budget::charge(1 + matcher.steps % STRIDE);
        matches
    }
}

/// An entry of the backtracking stack.
enum Undo {
    /// Continues at another instruction.
    Branch {
        at: usize,
        position: usize,
    },
    /// Gives up one character of a greedy run, down to its minimum.
    Less {
        at: usize,
        position: usize,
        least: usize,
        back: bool,
    },
    /// Takes one more character in a lazy run.
    More {
        at: usize,
        position: usize,
        set: usize,
        left: u32,
        back: bool,
    },
    Slot {
        slot: usize,
        old: usize,
    },
    Counter {
        counter: usize,
        old: (u32, usize),
    },
}

struct Matcher<'m> {
    program: &'m Program,
    text: &'m str,
    /// The start and end of each group.
    slots: Vec<usize>,
    /// For each repetition: the number of iterations begun, and where the last one began.
    counters: Vec<(u32, usize)>,
    undo: Vec<Undo>,
    steps: u64,
}

impl Matcher<'_> {
    fn search(&mut self) -> bool {
        let mut start = 0;
        loop {
            if self.run(0, start).is_some() {
                return true;
            }
            match self.after(start) {
                Some((_, next)) if !self.program.is_anchored => start = next,
                _ => return false,
            }
        }
    }

    /// Charges one step.
    fn step(&mut self) {
        self.steps += 1;
        if self.steps.is_multiple_of(STRIDE) {
            budget::charge(STRIDE);
        }
    }

    fn remember(&mut self, undo: Undo) {
        if self.undo.len() >= MOST_UNDONE {
            budget::exhausted();
        }
        self.undo.push(undo);
    }

    /// Returns the character at a position and the position after it.
    fn after(&self, position: usize) -> Option<(char, usize)> {
        let character = self.text[position..].chars().next()?;
        Some((character, position + character.len_utf8()))
    }

    /// Returns the character before a position and the position where it begins.
    fn before(&self, position: usize) -> Option<(char, usize)> {
        let character = self.text[..position].chars().next_back()?;
        Some((character, position - character.len_utf8()))
    }

    fn beside(&self, position: usize, back: bool) -> Option<(char, usize)> {
        if back {
            self.before(position)
        } else {
            self.after(position)
        }
    }

    fn take(&self, set: &Set, position: usize, back: bool) -> Option<usize> {
        let (character, next) = self.beside(position, back)?;
        set.has(character).then_some(next)
    }

    /// Runs from an instruction on and returns the position at which it accepts. On a match the
    /// backtracking entries stay on the stack; otherwise they are all used up.
    fn run(&mut self, mut at: usize, mut position: usize) -> Option<usize> {
        let base = self.undo.len();
        loop {
            self.step();
            let program = self.program;
            let next = match &program.instructions[at] {
                Instruction::Accept => return Some(position),
                Instruction::Set { set, back } => {
                    let taken = self.take(&program.sets[*set], position, *back);
                    taken.map(|position| (at + 1, position))
                }
                Instruction::Run {
                    set,
                    back,
                    min,
                    max,
                    greedy,
                } => {
                    let bounds = (*min, if *greedy { *max } else { *min });
                    let taken = self.take_run((*set, *back), bounds, position);
                    taken.map(|(end, least)| {
                        if *greedy && end != least {
                            self.remember(Undo::Less {
                                at: at + 1,
                                position: end,
                                least,
                                back: *back,
                            });
                        } else if !*greedy && max > min {
                            self.remember(Undo::More {
                                at: at + 1,
                                position: end,
                                set: *set,
                                left: max - min,
                                back: *back,
                            });
                        }
                        (at + 1, end)
                    })
                }
                Instruction::Split(other) => {
                    self.remember(Undo::Branch {
                        at: *other,
                        position,
                    });
                    Some((at + 1, position))
                }
                Instruction::Jump(to) => Some((*to, position)),
                Instruction::Save(slot) => {
                    self.save(*slot, position);
                    Some((at + 1, position))
                }
                Instruction::Assert(assertion) => {
                    let holds = self.holds(*assertion, position);
                    holds.then_some((at + 1, position))
                }
                Instruction::Back { groups, back } => {
                    let repeated = self.repeated(groups, position, *back);
                    repeated.map(|position| (at + 1, position))
                }
                Instruction::Look { negative, end } => {
                    let held = self.undo.len();
                    let found = self.run(at + 1, position).is_some();
                    if found && *negative {
                        self.restore(held);
                    } else {
                        self.settle(held);
                    }
                    (found != *negative).then_some((*end, position))
                }
                Instruction::Atomic { end } => {
                    let held = self.undo.len();
                    let found = self.run(at + 1, position);
                    self.settle(held);
                    found.map(|position| (*end, position))
                }
                Instruction::Begin(counter) => {
                    self.count(*counter, (0, NONE));
                    Some((at + 1, position))
                }
                Instruction::Loop {
                    counter,
                    min,
                    max,
                    greedy,
                    exit,
                } => {
                    let rounds = self.counters[*counter].0;
                    if rounds < *min {
                        Some((at + 1, position))
                    } else if rounds >= *max {
                        Some((*exit, position))
                    } else {
                        let (first, other) = if *greedy {
                            (at + 1, *exit)
                        } else {
                            (*exit, at + 1)
                        };
                        self.remember(Undo::Branch {
                            at: other,
                            position,
                        });
                        Some((first, position))
                    }
                }
                Instruction::Round { counter, groups } => {
                    let rounds = self.counters[*counter].0;
                    self.count(*counter, (rounds.saturating_add(1), position));
                    for slot in 2 * (groups.0 + 1)..2 * (groups.1 + 1) {
                        self.save(slot, NONE);
                    }
                    Some((at + 1, position))
                }
                Instruction::Again { counter, min, head } => {
                    let (rounds, began) = self.counters[*counter];
                    if began != position {
                        Some((*head, position))
                    } else if rounds <= *min {
                        // One empty iteration stands for all that are still required.
                        let Instruction::Loop { exit, .. } = &program.instructions[*head] else {
                            return None;
                        };
                        Some((*exit, position))
                    } else {
                        None
                    }
                }
            };
            (at, position) = next.or_else(|| self.retry(base))?;
        }
    }

    /// Takes as many characters as allowed; returns where they end and where the minimum would end.
    fn take_run(
        &mut self,
        (set, back): (usize, bool),
        (min, max): (u32, u32),
        start: usize,
    ) -> Option<(usize, usize)> {
        let set = &self.program.sets[set];
        let (mut position, mut least) = (start, start);
        let mut count = 0;
        while count < max
            && let Some(next) = self.take(set, position, back)
        {
            self.step();
            position = next;
            count += 1;
            if count == min {
                least = position;
            }
        }
        (count >= min).then_some((position, least))
    }

    /// Backtracks to the newest alternative; `None` if there is none above `base`.
    fn retry(&mut self, base: usize) -> Option<(usize, usize)> {
        while self.undo.len() > base {
            match self.undo.pop()? {
                Undo::Branch { at, position } => return Some((at, position)),
                Undo::Less {
                    at,
                    position,
                    least,
                    back,
                } => {
                    let (_, shorter) = self.beside(position, !back)?;
                    if shorter != least {
                        self.undo.push(Undo::Less {
                            at,
                            position: shorter,
                            least,
                            back,
                        });
                    }
                    return Some((at, shorter));
                }
                Undo::More {
                    at,
                    position,
                    set,
                    left,
                    back,
                } => {
                    self.step();
                    let longer = self.take(&self.program.sets[set], position, back);
                    let Some(longer) = longer else { continue };
                    if left > 1 {
                        self.undo.push(Undo::More {
                            at,
                            position: longer,
                            set,
                            left: left - 1,
                            back,
                        });
                    }
                    return Some((at, longer));
                }
                Undo::Slot { slot, old } => self.slots[slot] = old,
                Undo::Counter { counter, old } => self.counters[counter] = old,
            }
        }
        None
    }

    /// Undoes everything above `base` without trying alternatives.
    fn restore(&mut self, base: usize) {
        while self.undo.len() > base {
            match self.undo.pop() {
                Some(Undo::Slot { slot, old }) => self.slots[slot] = old,
                Some(Undo::Counter { counter, old }) => self.counters[counter] = old,
                Some(Undo::Branch { .. } | Undo::Less { .. } | Undo::More { .. }) | None => {}
            }
        }
    }

    /// Keeps the state but drops the alternatives above `base`.
    fn settle(&mut self, base: usize) {
        let since = self.undo.split_off(base.min(self.undo.len()));
        let kept = since
            .into_iter()
            .filter(|undo| matches!(undo, Undo::Slot { .. } | Undo::Counter { .. }));
        self.undo.extend(kept);
    }

    fn save(&mut self, slot: usize, position: usize) {
        let old = self.slots[slot];
        if old != position {
            self.step();
            self.remember(Undo::Slot { slot, old });
            self.slots[slot] = position;
        }
    }

    fn count(&mut self, counter: usize, new: (u32, usize)) {
        let old = self.counters[counter];
        self.remember(Undo::Counter { counter, old });
        self.counters[counter] = new;
    }

    /// Returns the position after a repetition of what a group captured, if it occurs here. A group
    /// that captured nothing matches the empty string.
    fn repeated(&mut self, groups: &[usize], position: usize, back: bool) -> Option<usize> {
        let ends = groups
            .iter()
            .map(|group| (self.slots[2 * group], self.slots[2 * group + 1]))
            .find(|(start, end)| *start != NONE && *end != NONE && start <= end);
        let Some((start, end)) = ends else {
            return Some(position);
        };
        let (text, captured) = (self.text.as_bytes(), &self.text.as_bytes()[start..end]);
        for _ in 0..captured.len() / 32 {
            self.step();
        }
        if back {
            let begun = position.checked_sub(captured.len())?;
            (&text[begun..position] == captured).then_some(begun)
        } else {
            let ended = position + captured.len();
            (text.get(position..ended)? == captured).then_some(ended)
        }
    }

    fn holds(&self, assertion: Assertion, position: usize) -> bool {
        let before = || self.before(position).map(|(character, _)| character);
        let after = || self.after(position).map(|(character, _)| character);
        let is_break = |c: char| matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}');
        let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        match assertion {
            Assertion::Start => position == 0,
            Assertion::End => position == self.text.len(),
            Assertion::LastLineEnd => matches!(&self.text[position..], "" | "\n"),
            Assertion::LineStart => before().is_none_or(is_break),
            Assertion::LineEnd => after().is_none_or(is_break),
            Assertion::Boundary => is_word(before()) != is_word(after()),
            Assertion::NoBoundary => is_word(before()) == is_word(after()),
        }
    }
}
