//! The administrative acts of a verification: each against the block that covers it.

use gantry_store::{AuditSnapshot, FoundAct, StoreError, StoredAct, act_digest};

use super::findings::{Finding, FindingKind};
use super::{Checker, ROWS};

impl Checker {
    /// Checks every act against the block that covers it, and from where on chains cover acts.
    pub(super) async fn acts(&mut self, audit: &mut AuditSnapshot<'_>) -> Result<(), StoreError> {
        self.acts_since(&audit.acts_since().await?);
        // Acts until this one are of earlier releases.
        let notes = self.begun_acts.iter().map(|(_, _, note)| note.parse());
        let former: Option<i64> = notes.map(|number| number.unwrap_or(-1)).min();
        let mut buffer = Vec::new();
        let mut after = i64::MIN;
        loop {
            let acts = audit.acts(after, ROWS).await?;
            let Some(last) = acts.last() else {
                return Ok(());
            };
            after = last.id();
            for act in acts {
                self.report.acts += 1;
                match act {
                    FoundAct::Whole(stored) => {
                        self.act(audit, &stored, former, &mut buffer).await?;
                    }
                    FoundAct::Unreadable(id) => self.add(Finding {
                        act: Some(id),
                        ..Finding::of(FindingKind::Changed, 0, None)
                    }),
                }
            }
        }
    }

    async fn act(
        &mut self,
        audit: &mut AuditSnapshot<'_>,
        stored: &StoredAct,
        former: Option<i64>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), StoreError> {
        let id = i64::try_from(stored.row.id).unwrap_or(i64::MAX);
        let finding = |kind| Finding {
            act: Some(id),
            project: Some(stored.row.project.clone()),
            ..Finding::of(kind, stored.gateway, stored.block)
        };
        let Some(number) = stored.block else {
            match former.is_none_or(|newest| id <= newest) {
                true => self.report.acts_not_covered += 1,
                false => self.add(finding(FindingKind::Inserted)),
            }
            return Ok(());
        };
        let at = (stored.gateway, number);
        let entry = match self.blocks.get(&at).is_some_and(|known| known.is_act) {
            true => self.entry(audit, at, u128::from(stored.row.id)).await?,
            false => None,
        };
        let known = self.blocks.get_mut(&at);
        let (Some((place, digest, salt)), Some(known)) = (entry, known) else {
            self.add(finding(FindingKind::Inserted));
            return Ok(());
        };
        if known.gone.get(place) {
            // An earlier state of it, or it was dropped and inserted again.
            self.add(finding(FindingKind::Inserted));
            return Ok(());
        }
        known.done.set(place);
        if act_digest(buffer, stored.gateway, &salt, &stored.row) != digest {
            self.add(finding(FindingKind::Changed));
        }
        Ok(())
    }

    /// Checks what is noted of the block from which on a chain covers acts.
    fn acts_since(&mut self, noted: &[(i64, u64)]) {
        let mut odd: Vec<i64> = Vec::new();
        for (gateway, number, _) in &self.begun_acts {
            if !noted.contains(&(*gateway, *number)) {
                odd.push(*gateway);
            }
        }
        for (gateway, _) in noted {
            if !self.begun_acts.iter().any(|(of, _, _)| of == gateway) {
                odd.push(*gateway);
            }
        }
        odd.dedup();
        for gateway in odd {
            self.find(FindingKind::HeadChanged, (gateway, None));
        }
    }
}
