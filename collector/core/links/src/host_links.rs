//! Infers the links of one host: of the calls that it makes to the requests that it serves, one kind of call at a time.
//!
//! Input: the host's requests and calls, as numbers of `Call`s. Output: for each call of a kind that is common enough
//! its parent, if any, and the confidence.
//!
//! 1. Guess how many calls each class of requests makes; link a short stretch in each order for each guess, and a long
//!    stretch for the best guesses; keep the best as the plan.
//! 2. Link all calls in the order of the plan.
//! 3. Compute marginals without an order, and the confidence that the order is real.
//! 4. If there is no order, estimate the rates again from the marginals.
//! 5. Combine links in order and marginals into a parent and a confidence for each call.
//! 6. Resolve calls in doubt by the histories of their requests.
//! 7. Give calls that were made while one request alone was open to that one, where the host's own calls are rare.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rayon::prelude::*;

use crate::connection_owners::{self, ConnectionOwners, ServiceShares};
use crate::dialogues::{Call, NEVER_NS};
use crate::evidence::Evidence;
use crate::initial_sizes::{self, Sizes};
use crate::mcmc_histories::{self, Candidate, Doubt};
use crate::only_open;
use crate::pools::Pool;
use crate::problem::{Guess, Order, Problem};
use crate::rates::guesses;
use crate::target_words::{self, WordModel};
use crate::tuning::TUNING;
use crate::without_order::{Parents, UnorderedLinks, order_confidence, slots_of};
use crate::work_after_response;

/// The time for which the trace is complete: all of it, but for requests that were never answered.
const ALL: Range<i64> = i64::MIN..NEVER_NS;

/// The parent of each call of a kind in the links that keep the order.
type OrderedLinks = HashMap<u32, Option<u32>>;

/// The link of a call whose kind is common enough to learn from: its parent, or none.
#[derive(Clone, Debug)]
pub struct InferredLink {
    pub child: u32,
    pub parent: Option<u32>,
    pub confidence: f64,
    /// The next likeliest parent, and its probability.
    pub alternative: Option<(u32, f64)>,
    /// Its parent in the links that keep the order, and the probability that this link is right.
    ordered_parent: Option<u32>,
    order_confidence: f64,
    /// If the link is in doubt, all requests that may have made the call.
    candidates: Vec<Candidate>,
}

/// All calls, the class and the kind of each, and what words of their targets mean.
pub struct Context<'a> {
    pub calls: &'a [Call],
    pub class: &'a [u16],
    pub kind: &'a [u16],
    pub words: &'a WordModel,
}

/// A host and the requests that it serves, in order of their arrival.
struct Host<'a> {
    host: i64,
    calls: &'a [Call],
    class: &'a [u16],
    kind: &'a [u16],
    words: &'a WordModel,
    /// What byte counts of the kind at hand mean before any link is made.
    sizes: Option<&'a Sizes>,
    /// For how long requests make calls after their responses; `close_ns` of `calls` includes it. 0 if they make none.
    linger_ns: i64,
    parents: &'a [u32],
}

/// Leaves out requests and calls without times; sorts requests by arrival and calls by start.
pub fn keep_timed_in_order(calls: &[Call], parents: &mut Vec<u32>, children: &mut Vec<u32>) {
    parents.retain(|&call| calls[call as usize].arrival_ns < NEVER_NS);
    children.retain(|&call| calls[call as usize].start_ns < NEVER_NS);
    parents.sort_by_key(|&call| calls[call as usize].arrival_ns);
    children.sort_by_key(|&call| calls[call as usize].start_ns);
}

/// The guess that explains the observations best, the order that its links keep, and the evidence learned from them.
#[derive(Clone)]
struct Plan {
    guess: Guess,
    order: Order,
    evidence: Evidence,
    score: f64,
    wide: Guess,
    /// The score and the density of delays. It decides between the two orders: their scores say little, since each
    /// order sorts links to match what it then learns.
    fit: f64,
}

/// Links of the calls of a pool, with numbers as outside of it.
pub fn link_pool(known: &Context, pool: &Pool) -> Vec<InferredLink> {
    let host = Host {
        host: crate::NONE,
        calls: &pool.calls,
        class: &pool.class,
        kind: &pool.kind,
        words: known.words,
        sizes: None,
        linger_ns: 0,
        parents: &pool.parents,
    };
    let outside = |call: u32| pool.number[call as usize];
    let renumbered = |found: InferredLink| InferredLink {
        child: outside(found.child),
        parent: found.parent.map(outside),
        alternative: found.alternative.map(|(parent, share)| (outside(parent), share)),
        ordered_parent: found.ordered_parent.map(outside),
        candidates: found
            .candidates
            .iter()
            .map(|&(parent, contents)| (outside(parent), contents))
            .collect(),
        ..found
    };
    host.link_kind(&pool.children).into_iter().map(renumbered).collect()
}

/// Links of `children`, calls that the host makes, to `parents`, requests that it serves, both as `keep_timed_in_order`
/// leaves them. `done`: links of the host's calls that a pool gave.
pub fn link_host(
    known: &Context,
    host: i64,
    parents: &[u32],
    mut children: Vec<u32>,
    done: Vec<InferredLink>,
) -> Vec<InferredLink> {
    let Context { calls, kind, .. } = *known;
    children.sort_by_key(|&call| kind[call as usize]);
    let kinds = || children.chunk_by(|&a, &b| kind[a as usize] == kind[b as usize]);
    let host = Host {
        host,
        calls,
        class: known.class,
        kind,
        words: known.words,
        sizes: None,
        linger_ns: 0,
        parents,
    };
    let mut few = kinds()
        .filter(|kind| kind.len() < TUNING.min_calls_per_kind)
        .collect::<Vec<_>>()
        .concat();
    few.sort_by_key(|&call| calls[call as usize].start_ns);
    let kinds: Vec<&[u32]> = kinds().filter(|kind| kind.len() >= TUNING.min_calls_per_kind).collect();
    let connection_owners = host.connection_owners(&kinds);
    let mut found: Vec<InferredLink> = split_by_owner(calls, &connection_owners, &kinds)
        .into_par_iter()
        .flat_map_iter(|(service, kind)| match service {
            None => host.link_kind(&kind),
            Some(service) => host.link_kind_of(service, &kind, &connection_owners),
        })
        .collect();
    found.extend(done);
    resolve_doubts(calls, known.class, kind, &mut found);
    only_open::link(calls, kind, parents, &mut found);
    found.extend(host.link_rare_kinds(&few));
    found
}

/// Splits kinds by the service that owns their connections, where owners are known.
fn split_by_owner(
    calls: &[Call],
    connection_owners: &ConnectionOwners,
    kinds: &[&[u32]],
) -> Vec<(Option<i64>, Vec<u32>)> {
    let mut parts: Vec<(Option<i64>, Vec<u32>)> = vec![];
    for kind in kinds {
        let mut by_service: BTreeMap<Option<i64>, Vec<u32>> = BTreeMap::new();
        for &child in *kind {
            let owner = connection_owners.get(&calls[child as usize].connection_id);
            by_service.entry(owner.map(|owner| owner.0)).or_default().push(child);
        }
        let enough =
            |(service, part): (&Option<i64>, &Vec<u32>)| service.is_none() || part.len() >= TUNING.min_calls_per_kind;
        if by_service.iter().all(enough) {
            parts.extend(by_service);
        } else {
            parts.push((None, kind.to_vec()));
        }
    }
    parts
}

/// Resolves calls in doubt by the histories of the requests.
fn resolve_doubts(calls: &[Call], class: &[u16], kind: &[u16], found: &mut [InferredLink]) {
    if found.iter().all(|found| found.candidates.is_empty()) {
        return;
    }
    let mut linked: Vec<&mut InferredLink> = found.iter_mut().filter(|found| found.parent.is_some()).collect();
    let doubt = |found: &mut &mut InferredLink| Doubt {
        child: found.child,
        parent: found.parent.unwrap_or_default(),
        candidates: std::mem::take(&mut found.candidates),
    };
    let doubts: Vec<Doubt> = linked.iter_mut().map(doubt).collect();
    for (found, resolved) in linked
        .iter_mut()
        .zip(mcmc_histories::parents(calls, class, kind, &doubts))
    {
        if let Some(resolved) = resolved {
            let mixed = |(parent, share): (u32, f64)| {
                let in_place = if found.ordered_parent == Some(parent) {
                    found.order_confidence
                } else {
                    0.0
                };
                (parent, in_place + (1.0 - found.order_confidence) * share)
            };
            let own = found
                .ordered_parent
                .filter(|&own| own != resolved.parent)
                .map(|own| mixed((own, 0.0)));
            let other = own.into_iter().chain(resolved.alternative.map(mixed));
            let (parent, confidence) = mixed((resolved.parent, resolved.share));
            found.parent = Some(parent);
            found.confidence = confidence.min(TUNING.max_confidence);
            found.alternative = other
                .filter(|other| other.1 > TUNING.min_candidate_share)
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .map(|(other, share)| (other, share.min(found.confidence)));
        }
    }
}

/// The two likeliest parents. `own`: the parent in order, which is right with probability `right`; `shares`: the
/// marginals, which hold otherwise.
fn two_likeliest(shares: &[(u32, f64)], own: Option<u32>, right: f64) -> [Option<(u32, f64)>; 2] {
    let in_place = |parent| if own == Some(parent) { right } else { 0.0 };
    let mixed = |&(parent, share): &(u32, f64)| (parent, in_place(parent) + (1.0 - right) * share);
    let unlisted = own.filter(|own| shares.iter().all(|share| share.0 != *own));
    let [mut best, mut next] = [None::<(u32, f64)>; 2];
    for one in shares.iter().map(mixed).chain(unlisted.map(|own| (own, right))) {
        if best.is_none_or(|best| one.1 > best.1) {
            (next, best) = (best, Some(one));
        } else if next.is_none_or(|next| one.1 > next.1) {
            next = Some(one);
        }
    }
    [best, next]
}

impl Host<'_> {
    /// The service that owns each connection of these kinds; empty where connections are shared.
    fn connection_owners(&self, kinds: &[&[u32]]) -> ConnectionOwners {
        let reused = |kind: &&&[u32]| !connection_owners::services(self.calls, self.parents, kind).is_empty();
        let reused: Vec<&[u32]> = kinds.iter().filter(reused).copied().collect();
        let services = connection_owners::services(self.calls, self.parents, &reused.concat());
        if services.is_empty() {
            return ConnectionOwners::new();
        }
        let shared: Vec<ServiceShares> = reused
            .par_iter()
            .flat_map_iter(|kind| self.service_shares(kind, &services))
            .collect();
        connection_owners::connection_owners(self.calls, &services, &shared)
    }

    /// Links to requests of one service; confidences are multiplied by the probability that it owns the connection.
    fn link_kind_of(&self, service: i64, children: &[u32], connection_owners: &ConnectionOwners) -> Vec<InferredLink> {
        let mut parents = self.parents.to_vec();
        parents.retain(|&p| self.calls[p as usize].service == service);
        let host = Host {
            parents: &parents,
            ..*self
        };
        let mut found = host.link_kind(children);
        for found in &mut found {
            let likely = connection_owners[&self.calls[found.child as usize].connection_id].1;
            found.confidence *= likely;
            found.alternative = found.alternative.map(|(parent, share)| (parent, share * likely));
            found.order_confidence *= likely;
        }
        found
    }

    /// The probability of each of `services` to have made each call, for some stretches of the kind.
    fn service_shares(&self, children: &[u32], services: &[i64]) -> Vec<ServiceShares> {
        let Some(guess) = guesses(self.calls, self.class, self.parents, children)
            .into_iter()
            .next()
        else {
            return vec![];
        };
        let none: OrderedLinks = children.iter().map(|&child| (child, None)).collect();
        let parts: Vec<&[u32]> = children.chunks(TUNING.judged_calls).collect();
        let some = parts.iter().step_by(parts.len().div_ceil(TUNING.owner_stretches));
        let services_of = |part: &&[u32]| {
            self.on_marginals(children, part, &guess, &none, 1, |without_order| {
                let by_service = |parents: Parents| {
                    let mut by_service = vec![0.0; services.len()];
                    for (parent, share) in &parents.shares {
                        let service = self.calls[*parent as usize].service;
                        by_service[services.partition_point(|&s| s < service)] += share;
                    }
                    ServiceShares {
                        call: parents.child,
                        by_service,
                    }
                };
                without_order
                    .parents()
                    .into_iter()
                    .map(by_service)
                    .collect::<Vec<ServiceShares>>()
            })
        };
        some.flat_map(services_of).collect()
    }

    /// Links of calls of rare kinds, by the words that they share with a request.
    fn link_rare_kinds(&self, children: &[u32]) -> Vec<InferredLink> {
        let table = |child: u32| self.words.table(self.host, self.kind[child as usize]).copied();
        let found = |(child, parents): (u32, Vec<(u32, f64)>)| {
            let (parent, confidence) = parents[0];
            InferredLink {
                child,
                parent: Some(parent),
                confidence: confidence.min(TUNING.max_confidence),
                alternative: parents
                    .get(1)
                    .copied()
                    .filter(|other| other.1 > TUNING.min_candidate_share),
                ordered_parent: None,
                order_confidence: 0.0,
                candidates: vec![],
            }
        };
        let few = target_words::parents_of_few(self.calls, self.parents, children, table);
        few.into_iter().map(found).collect()
    }

    fn link_kind(&self, children: &[u32]) -> Vec<InferredLink> {
        let sizes = initial_sizes::sizes(self.calls, self.class, self.parents, children);
        let host = Host {
            sizes: sizes.as_ref(),
            ..*self
        };
        host.link_to_active(children)
    }

    /// Links to requests that were open when the call left, or that linger after their response if the kind's calls do.
    fn link_to_active(&self, children: &[u32]) -> Vec<InferredLink> {
        match work_after_response::linger_ns(self.calls, self.parents, children) {
            None => self.link_to_open(children),
            Some(linger_ns) => self.link_to_lingering(children, linger_ns),
        }
    }

    /// Links to requests that may make calls until `linger_ns` after their response.
    fn link_to_lingering(&self, children: &[u32], linger_ns: i64) -> Vec<InferredLink> {
        let mut calls = self.calls.to_vec();
        for &parent in self.parents {
            let call = &mut calls[parent as usize];
            call.close_ns = call.close_ns.saturating_add(linger_ns).min(NEVER_NS);
        }
        let host = Host {
            calls: &calls,
            linger_ns,
            ..*self
        };
        host.link_to_open(children)
    }

    /// Links to requests that were open when the call left, by the best plan.
    fn link_to_open(&self, children: &[u32]) -> Vec<InferredLink> {
        let Some(plan) = self.best_plan(children) else {
            return vec![];
        };
        let most = plan.guess.rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
        if plan.guess.orphan_share > TUNING.many_orphans_share || most < TUNING.seldom_calls_per_request {
            let class = self.classes_by_duration();
            let host = Host { class: &class, ..*self };
            let least =
                plan.score + TUNING.better_guess_nats_per_call * children.len().min(TUNING.long_stretch_calls) as f64;
            if let Some(better) = host.best_plan(children).filter(|other| other.score > least) {
                return host.link_per_server(children, &better);
            }
        }
        self.link_per_server(children, &plan)
    }

    /// Classes of requests of about equal duration. Where only some requests of a class make a call (the last of
    /// several that a service joins makes it for all), those take longer.
    fn classes_by_duration(&self) -> Vec<u16> {
        let mut number: BTreeMap<(u16, u32), u16> = BTreeMap::new();
        let mut class = vec![0; self.calls.len()];
        for &parent in self.parents {
            let call = &self.calls[parent as usize];
            let duration_ns = call.response_ns.saturating_sub(call.arrival_ns).max(1) as u64;
            let next = number.len() as u16;
            let key = (
                self.class[parent as usize],
                duration_ns.ilog2() / TUNING.duration_class_octaves,
            );
            class[parent as usize] = *number.entry(key).or_insert(next);
        }
        class
    }

    fn link_per_server(&self, children: &[u32], plan: &Plan) -> Vec<InferredLink> {
        let servers = self.one_each(children, &plan.guess);
        if servers.is_empty() {
            return self.link_by_plan(children, &plan.guess, plan);
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
            orphan_share: plan.guess.orphan_share,
        };
        servers
            .par_iter()
            .flat_map_iter(|&server| self.link_by_plan(&self.calls_to(children, server), &guess, plan))
            .collect()
    }

    /// The guess, and where words of targets are evidence, the classes that hardly ever make such calls.
    fn with_rare_classes(&self, children: &[u32], guess: &Guess, wide: &Guess) -> Guess {
        let mut all = guess.clone();
        if self.words.table(self.host, self.kind[children[0] as usize]).is_some() {
            let is_new = |rate: &&(u16, f64)| guess.rates.iter().all(|known| known.0 != rate.0);
            let rare = |&(class, rate): &(u16, f64)| (class, rate.min(TUNING.rare_class_calls_per_request));
            all.rates.extend(wide.rates.iter().filter(is_new).map(rare));
        }
        all
    }

    /// The plan that explains a long stretch best, among those that explain a short one best.
    fn best_plan(&self, children: &[u32]) -> Option<Plan> {
        let mut tries = vec![];
        let all = guesses(self.calls, self.class, self.parents, children);
        let wide = all.first()?.clone();
        for guess in all {
            tries.extend([Order::ByArrival, Order::ByAnswer].map(|order| (guess.clone(), order, None)));
        }
        let plans = self.compare_plans(children, TUNING.short_stretch_calls, tries);
        if children.len() <= TUNING.short_stretch_calls {
            return plans.into_iter().next().map(|p| Plan { wide, ..p });
        }
        let mut last: Vec<Plan> = vec![];
        for plan in plans {
            if last.len() < TUNING.long_stretch_guesses && last.iter().all(|other| other.guess != plan.guess) {
                last.push(plan);
            }
        }
        let again =
            |plan: &Plan| [None, Some(plan.evidence.clone())].map(|known| (plan.guess.clone(), plan.order, known));
        let tries = last.iter().flat_map(again).collect();
        self.compare_plans(children, TUNING.long_stretch_calls, tries)
            .into_iter()
            .next()
            .map(|p| Plan { wide, ..p })
    }

    /// Plans for a stretch of `length` calls, the best first. Each starts from the evidence given, or from short links.
    /// For each guess only the order that fits better is kept.
    fn compare_plans(
        &self,
        children: &[u32],
        length: usize,
        tries: Vec<(Guess, Order, Option<Evidence>)>,
    ) -> Vec<Plan> {
        let stretch = self.quiet_stretch(children, length);
        let seen = self.seen_with(children, stretch);
        let plan = |(guess, order, known): (Guess, Order, Option<Evidence>)| {
            let problem = self.problem(stretch, &guess, order, &seen);
            let mut chosen = known.map_or_else(|| problem.first_links(), |evidence| problem.links(&evidence));
            let mut sides = problem.directional_delays(&chosen);
            let mut evidence = problem.learn(&chosen, sides.queue_directions());
            for _ in 1..TUNING.plan_rounds {
                chosen = problem.links(&evidence);
                sides = problem.directional_delays(&chosen);
                evidence = problem.learn(&chosen, sides.queue_directions());
            }
            let score = problem.score(&chosen, &evidence);
            let fit = score + stretch.len() as f64 * sides.fit();
            Plan {
                guess,
                order,
                evidence,
                score,
                wide: Guess {
                    rates: vec![],
                    orphan_share: 0.0,
                },
                fit,
            }
        };
        let plans: Vec<Plan> = tries.into_par_iter().map(plan).collect();
        let mut plans: Vec<Plan> = plans
            .chunk_by(|a, b| a.guess == b.guess)
            .filter_map(|same| same.iter().max_by(|a, b| a.fit.total_cmp(&b.fit)))
            .cloned()
            .collect();
        plans.sort_by(|a, b| b.score.total_cmp(&a.score));
        plans
    }

    fn problem(&self, children: &[u32], guess: &Guess, order: Order, seen: &Range<i64>) -> Problem {
        Problem::new(
            self.calls,
            self.class,
            self.parents_of(children),
            children,
            guess,
            order,
            seen,
        )
        .with_initial_evidence(
            self.words.table(self.host, self.kind[children[0] as usize]).copied(),
            self.sizes.cloned(),
            self.linger_ns,
        )
    }

    /// The time in which all calls that started are in the stretch.
    fn seen_with(&self, children: &[u32], stretch: &[u32]) -> Range<i64> {
        let start_ns = |child: &u32| self.calls[*child as usize].start_ns;
        let first = if stretch[0] == children[0] {
            ALL.start
        } else {
            start_ns(&stretch[0])
        };
        let (last, end) = (stretch[stretch.len() - 1], children[children.len() - 1]);
        first..if last == end { ALL.end } else { start_ns(&last) }
    }

    /// `length` calls from the quietest moment on: where few requests are open, an order cannot begin at the wrong one.
    fn quiet_stretch<'c>(&self, children: &'c [u32], length: usize) -> &'c [u32] {
        let last = children.len().saturating_sub(length);
        let (mut open, mut next): (Vec<u32>, usize) = (vec![], 0);
        let mut quietest = (usize::MAX, 0);
        for (place, &child) in children[..=last].iter().enumerate() {
            let start_ns = self.calls[child as usize].start_ns;
            while next < self.parents.len() && self.calls[self.parents[next] as usize].arrival_ns <= start_ns {
                open.push(self.parents[next]);
                next += 1;
            }
            open.retain(|&p| self.calls[p as usize].close_ns >= start_ns);
            quietest = quietest.min((open.len(), place));
        }
        &children[quietest.1..children.len().min(quietest.1 + length)]
    }

    /// The requests that were open at some time between the first start and the last.
    fn parents_of(&self, children: &[u32]) -> &[u32] {
        let ends = |at: usize| self.calls[children[at] as usize].start_ns;
        let (first, last) = (ends(0), ends(children.len() - 1));
        let until = self
            .parents
            .partition_point(|&p| self.calls[p as usize].arrival_ns <= last);
        let still_open = |&p: &u32| self.calls[p as usize].close_ns >= first;
        let from = self.parents[..until].iter().position(still_open).unwrap_or(until);
        &self.parents[from..until]
    }

    /// The servers, if each request calls each of them once; else nothing.
    fn one_each(&self, children: &[u32], guess: &Guess) -> Vec<i64> {
        let mut servers: Vec<i64> = children.iter().map(|&c| self.calls[c as usize].server_host).collect();
        servers.sort_unstable();
        let most = guess.rates.iter().map(|rate| rate.1).fold(0.0, f64::max);
        let is_one = |same: &[i64]| {
            let each = same.len() as f64 / children.len() as f64 * most;
            (each - 1.0).abs() <= TUNING.one_each_tolerance_calls
        };
        if !servers.chunk_by(|a, b| a == b).all(is_one) {
            return vec![];
        }
        servers.dedup();
        servers
    }

    fn calls_to(&self, children: &[u32], server: i64) -> Vec<u32> {
        children
            .iter()
            .copied()
            .filter(|&c| self.calls[c as usize].server_host == server)
            .collect()
    }

    fn link_by_plan(&self, children: &[u32], guess: &Guess, plan: &Plan) -> Vec<InferredLink> {
        let length = TUNING
            .judged_calls
            .max(TUNING.judged_calls_per_open_request * self.mean_concurrency(children, guess));
        let stretch = self.quiet_stretch(children, length);
        let in_order = self.links_in_order(children, guess, plan);
        let guess = &self.with_rare_classes(children, guess, &plan.wide);
        let (mut kept, mut found) = self.on_marginals(
            children,
            stretch,
            guess,
            &in_order,
            TUNING.sharing_rounds,
            |without_order| {
                let parents = without_order.parents();
                let kept = without_order.order(plan.order, &parents);
                let found = combine(parents, kept.by_call.iter().copied(), &in_order);
                (kept, found)
            },
        );
        let refitted = if kept.log_odds < 0.0 || guess.orphan_share > TUNING.many_orphans_share {
            self.refit_rates(children, stretch, plan, guess, &in_order)
        } else {
            None
        };
        if refitted.is_some() && kept.log_odds >= 0.0 {
            // an order that leaves calls without parent, which other rates explain, is not real
            kept.log_odds = -TUNING.settled_log_odds;
            kept.by_call.fill(0.0);
        }
        let guess = refitted.as_ref().unwrap_or(guess);
        if refitted.is_some() {
            found = self.on_marginals(
                children,
                stretch,
                guess,
                &in_order,
                TUNING.sharing_rounds,
                |without_order| combine(without_order.parents(), kept.by_call.iter().copied(), &in_order),
            );
        }
        if stretch.len() == children.len() {
            return found;
        }
        let right = order_confidence(kept.log_odds);
        let says_nothing = |&child: &u32| self.calls[child as usize].call_words.is_empty();
        if kept.log_odds > TUNING.settled_log_odds && children.iter().all(says_nothing) {
            let found = |&child: &u32| InferredLink {
                child,
                parent: in_order[&child],
                confidence: right,
                alternative: None,
                ordered_parent: in_order[&child],
                order_confidence: right,
                candidates: vec![],
            };
            return children.iter().map(found).collect();
        }
        let part = |part: &[u32]| {
            self.on_marginals(
                children,
                part,
                guess,
                &in_order,
                TUNING.sharing_rounds,
                |without_order| {
                    combine(
                        without_order.parents(),
                        without_order.order_confidences(right).into_iter(),
                        &in_order,
                    )
                },
            )
        };
        children.par_chunks(length).flat_map_iter(part).collect()
    }

    /// Rates estimated without an order, by expectation and maximisation: compute marginals, count calls for each
    /// class, repeat while the observations become more likely. From two starting points; nothing if the result is
    /// hardly better than `guess`.
    fn refit_rates(
        &self,
        children: &[u32],
        stretch: &[u32],
        plan: &Plan,
        guess: &Guess,
        in_order: &OrderedLinks,
    ) -> Option<Guess> {
        let judge = |guess: &Guess| {
            self.on_marginals(
                children,
                stretch,
                guess,
                in_order,
                TUNING.sharing_rounds,
                |without_order| (without_order.likelihood(), without_order.rates_by_shares(guess)),
            )
        };
        let (first, next) = judge(guess);
        let mut best = (first + TUNING.better_guess_nats_per_call * stretch.len() as f64, None);
        for mut guess in [next, plan.wide.with_all_linked()] {
            let mut before = f64::NEG_INFINITY;
            for _ in 0..TUNING.refit_rounds {
                let (likelihood, next) = judge(&guess);
                if likelihood < before + TUNING.refit_min_gain_nats {
                    break;
                }
                before = likelihood;
                if likelihood > best.0 {
                    best = (likelihood, Some(guess));
                }
                guess = next;
            }
        }
        best.1
    }

    /// The parent of each call in the order of the plan.
    fn links_in_order(&self, children: &[u32], guess: &Guess, plan: &Plan) -> OrderedLinks {
        let problem = self.problem(children, guess, plan.order, &ALL);
        let first = problem.links(&plan.evidence);
        let chosen = problem.links(&problem.learn(&first, plan.evidence.queued.clone()));
        problem.pairs(&chosen).collect()
    }

    /// `summarise` of the marginals of a stretch of the calls.
    fn on_marginals<T>(
        &self,
        children: &[u32],
        stretch: &[u32],
        guess: &Guess,
        in_order: &OrderedLinks,
        rounds: usize,
        summarise: impl Fn(&UnorderedLinks) -> T,
    ) -> T {
        let problem = self.problem(stretch, guess, Order::ByArrival, &self.seen_with(children, stretch));
        summarise(&UnorderedLinks::new(&problem, &slots_of(&problem, in_order), rounds))
    }

    /// How many requests that may make such calls are open at a time, in the mean.
    fn mean_concurrency(&self, children: &[u32], guess: &Guess) -> usize {
        let start_ns = |child: u32| self.calls[child as usize].start_ns;
        let span_ns = start_ns(children[children.len() - 1]) - start_ns(children[0]);
        let asks = |p: &&u32| guess.rates.iter().any(|rate| rate.0 == self.class[**p as usize]);
        let arrival_ns = |p: &u32| (self.calls[*p as usize].close_ns - self.calls[*p as usize].arrival_ns).min(span_ns);
        let open = self.parents_of(children).iter().filter(asks);
        let all_ns: i128 = open.map(|p| i128::from(arrival_ns(p))).sum(); // many requests, each open for a year
        (all_ns / i128::from(span_ns.max(1))) as usize
    }
}

/// The likeliest parent of each call, if it likely has any: the link in order with weight `right`, the marginals with
/// the rest.
fn combine(parents: Vec<Parents>, right: impl Iterator<Item = f64>, in_order: &OrderedLinks) -> Vec<InferredLink> {
    let found = |(parents, right): (Parents, f64)| {
        let (child, own) = (parents.child, in_order[&parents.child]);
        let some = (1.0 - right) * parents.any_probability + if own.is_some() { right } else { 0.0 };
        let all_listed = parents.contents.len() == parents.shares.len();
        let near = parents
            .shares
            .iter()
            .zip(&parents.contents)
            .filter(|(share, _)| share.1 > TUNING.min_candidate_share);
        let near: Vec<Candidate> = near.map(|(share, &contents)| (share.0, contents)).collect();
        let [best, next] = two_likeliest(&parents.shares, own, right);
        let best = best.filter(|_| some >= TUNING.min_parent_probability);
        let (parent, confidence) = best.map_or((None, 0.0), |(parent, confidence)| (Some(parent), confidence));
        let in_doubt = all_listed
            && right < TUNING.min_parent_probability
            && confidence < TUNING.doubt_max_confidence
            && near.iter().any(|c| Some(c.0) == parent);
        InferredLink {
            child,
            parent,
            confidence,
            alternative: next.filter(|next| parent.is_some() && next.1 > TUNING.min_candidate_share),
            ordered_parent: own,
            order_confidence: right,
            candidates: if in_doubt { near } else { vec![] },
        }
    };
    parents.into_iter().zip(right).map(found).collect()
}

#[cfg(test)]
impl InferredLink {
    /// A link of which nothing else is known.
    pub fn plain(child: u32, parent: Option<u32>, confidence: f64) -> Self {
        InferredLink {
            child,
            parent,
            confidence,
            alternative: None,
            ordered_parent: None,
            order_confidence: 0.0,
            candidates: vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The link of call 0, which requests 1 and 2 may have made; `listed`: for how many of them byte counts are known.
    fn link_of(listed: usize) -> InferredLink {
        let parents = Parents {
            child: 0,
            any_probability: 1.0,
            entropy: 0.7,
            shares: vec![(1, 0.6), (2, 0.4)],
            contents: vec![0.0; listed],
        };
        combine(vec![parents], std::iter::once(0.0), &OrderedLinks::from([(0, None)])).remove(0)
    }

    #[test]
    fn only_where_all_requests_that_may_have_made_a_call_are_listed_histories_are_asked() {
        assert_eq!(link_of(2).candidates.len(), 2);
        assert!(link_of(1).candidates.is_empty());
        assert_eq!(link_of(1).parent, link_of(2).parent);
    }
}
