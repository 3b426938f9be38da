//! The links of one host: kind by kind of the calls that it makes.

use crate::calls::{Call, FAR};
use crate::evidence::Evidence;
use crate::problem::{Guess, Order, Problem};
use crate::rates::guesses;

/// Children on which guesses are compared: a stretch from the middle of the trace.
const STRETCH: usize = 1000;
/// Rounds of linking and learning there, and with all children.
const ROUNDS: usize = 3;
/// How far from one a server's share of a request's calls may be for the calls to go one to each server.
const ONE_EACH: std::ops::Range<f64> = 0.9..1.1;

/// A kind with fewer calls teaches nothing.
const FEW: usize = 20;

/// What was found for a call whose kind is common enough to learn from: its parent, or that it has none.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    pub child: u32,
    pub parent: Option<u32>,
    pub confidence: f64,
}

/// The requests that a host serves, in order of their opening.
struct Host<'a> {
    calls: &'a [Call],
    class: &'a [u16],
    parents: Vec<u32>,
}

/// A guess that explains the links best, the order that they keep, and what they then show.
struct Plan {
    guess: Guess,
    order: Order,
    evidence: Evidence,
}

/// Links of `children` (calls that the host makes) to `parents` (calls that it serves).
pub fn link_host(calls: &[Call], class: &[u16], mut parents: Vec<u32>, mut children: Vec<u32>) -> Vec<Found> {
    parents.retain(|&call| calls[call as usize].open_ns < FAR);
    children.retain(|&call| calls[call as usize].start_ns < FAR);
    parents.sort_by_key(|&call| calls[call as usize].open_ns);
    children.sort_by_key(|&call| (class[call as usize], calls[call as usize].start_ns));
    let host = Host { calls, class, parents };
    let kinds = children.chunk_by(|&a, &b| class[a as usize] == class[b as usize]);
    kinds
        .filter(|kind| kind.len() >= FEW)
        .flat_map(|kind| host.link_kind(kind))
        .collect()
}

impl Host<'_> {
    fn link_kind(&self, children: &[u32]) -> Vec<Found> {
        let Some(plan) = self.best_plan(children) else {
            return vec![];
        };
        let servers = self.one_each(children, &plan.guess);
        if servers.is_empty() {
            return self.linked(children, &plan.guess, &plan);
        }
        let part = 1.0 / servers.len() as f64;
        let rates = plan
            .guess
            .rates
            .iter()
            .map(|&(class, rate)| (class, rate * part))
            .collect();
        let guess = Guess {
            rates,
            alone: plan.guess.alone,
        };
        servers
            .iter()
            .flat_map(|&server| self.linked(&self.on(children, server), &guess, &plan))
            .collect()
    }

    fn best_plan(&self, children: &[u32]) -> Option<Plan> {
        let from = children.len().saturating_sub(STRETCH) / 2;
        let stretch = &children[from..children.len().min(from + STRETCH)];
        let parents = self.parents_of(stretch);
        let mut best: Option<(f64, Plan)> = None;
        for guess in guesses(self.calls, self.class, &self.parents, children) {
            for order in [Order::Front, Order::Back] {
                let problem = Problem::new(self.calls, self.class, parents, stretch, &guess, order);
                let mut chosen = problem.first_links();
                let mut evidence = problem.learn(&chosen);
                for _ in 1..ROUNDS {
                    chosen = problem.links(&evidence);
                    evidence = problem.learn(&chosen);
                }
                let score = problem.score(&chosen, &evidence);
                if best.as_ref().is_none_or(|(other, _)| score > *other) {
                    best = Some((
                        score,
                        Plan {
                            guess: guess.clone(),
                            order,
                            evidence,
                        },
                    ));
                }
            }
        }
        best.map(|(_, plan)| plan)
    }

    /// The requests that were open at some time between the first and the last start.
    fn parents_of(&self, children: &[u32]) -> &[u32] {
        let ends = |at: usize| self.calls[children[at] as usize].start_ns;
        let (first, last) = (ends(0), ends(children.len() - 1));
        let until = self
            .parents
            .partition_point(|&p| self.calls[p as usize].open_ns <= last);
        let still_open = |&p: &u32| self.calls[p as usize].close_ns >= first;
        let from = self.parents[..until].iter().position(still_open).unwrap_or(until);
        &self.parents[from..until]
    }

    /// The servers, if each request calls each of them once.
    fn one_each(&self, children: &[u32], guess: &Guess) -> Vec<i64> {
        let mut servers: Vec<i64> = children.iter().map(|&c| self.calls[c as usize].server_host).collect();
        servers.sort_unstable();
        let most = guess.rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
        let one = |same: &[i64]| ONE_EACH.contains(&(same.len() as f64 / children.len() as f64 * most));
        if !servers.chunk_by(|a, b| a == b).all(one) {
            return vec![];
        }
        servers.dedup();
        servers
    }

    fn on(&self, children: &[u32], server: i64) -> Vec<u32> {
        children
            .iter()
            .copied()
            .filter(|&c| self.calls[c as usize].server_host == server)
            .collect()
    }

    fn linked(&self, children: &[u32], guess: &Guess, plan: &Plan) -> Vec<Found> {
        let parents = self.parents_of(children);
        let problem = Problem::new(self.calls, self.class, parents, children, guess, plan.order);
        let chosen = problem.links(&problem.learn(&problem.links(&plan.evidence)));
        problem
            .pairs(&chosen)
            .map(|(child, parent)| Found {
                child,
                parent,
                confidence: 0.99,
            })
            .collect()
    }
}
