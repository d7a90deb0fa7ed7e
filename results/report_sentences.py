"""What a report says in words: the best setting, the suspect against it, the caveats, and what to do next."""

from __future__ import annotations

from collections import Counter

from results.drift import MIN_POINTS, Drift
from results.loads import load_words
from results.measured_settings import launch_values
from results.objective import METRIC_WORDS, Objective
from results.ranked_settings import RankedSetting
from results.ranking import Ranking
from results.speedups import throughput_at
from results.stats.effects import effect_verdict
from results.summary import Estimate
from results.table import estimate_words, setting_words

_NOISY = 0.2
"""A noise floor above which a tie is no reason to be content."""


def summary_sentences(ranking: Ranking, suspect: RankedSetting | None) -> tuple[str, ...]:
    """The report's first lines: what is best, how the suspect compares, and whether speculation pays at all."""
    told = simulated(ranking)
    first = [f"Acceptance was simulated ({told}): nothing below is a measurement of the draft."] if told else []
    if ranking.choice is None:
        return (*first, _nothing_ranked(ranking))
    sentences = [*first, _choice_sentence(ranking, ranking.choice), *_baseline_sentences(ranking, ranking.choice)]
    if suspect is not None and suspect.setting is not ranking.choice.setting:
        sentences.append(_suspect_sentence(suspect, ranking.choice))
    return (*sentences, *_tie_sentences(ranking))


def simulated(ranking: Ranking) -> str | None:
    """What replaced real acceptance on the servers of this study, as their engine was allowed to; None: nothing."""
    rows = (*ranking.settings, *ranking.baselines)
    launches = (record.launch for row in rows for record in row.setting.records if record.launch is not None)
    return next((launch.simulated for launch in launches if launch.simulated is not None), None)


def _nothing_ranked(ranking: Ranking) -> str:
    reasons = Counter(reason for row in ranking.settings for reason in row.reasons)
    if not reasons:
        return "No setting has been measured yet."
    reason, count = reasons.most_common(1)[0]
    return f"No setting could be ranked; the most frequent reason ({count} of {len(ranking.settings)}): {reason}."


def _choice_sentence(ranking: Ranking, choice: RankedSetting) -> str:
    metric = ranking.objective.metric
    digits = 2 if metric == "accept_length" else 1
    where = "" if ranking.load is None else f" at {load_words(ranking.load)}"
    value = estimate_words(choice.value, digits)
    sentence = f"Run {setting_words(choice)}: {METRIC_WORDS[metric]} {value}{where}"
    if metric != "accept_length" and choice.accept_length is not None:
        sentence += f", accept length {estimate_words(choice.accept_length, 2)}"
    return sentence + (", confirmed on fresh launches." if choice.confirmed else ".")


def _tie_sentences(ranking: Ranking) -> list[str]:
    best, choice = ranking.best, ranking.choice
    sentences = []
    if best is not None and choice is not None and best.setting is not choice.setting:
        sentences.append(
            f"It ties with the nominally best one ({setting_words(best)}, {estimate_words(best.value, 1)}) within the "
            "noise between launches, and is cheaper."
        )
    elif ranking.ties:
        words = "another setting ties" if len(ranking.ties) == 1 else f"{len(ranking.ties)} other settings tie"
        sentences.append(f"{words.capitalize()} with it within the noise between launches; it is the cheapest of them.")
    if ranking.untold:
        number = len(ranking.untold)
        words = "1 setting" if number == 1 else f"{number} settings"
        sentences.append(f"{words} cannot be told apart from the best with these prompts and launches.")
    return sentences


def _suspect_sentence(suspect: RankedSetting, choice: RankedSetting) -> str:
    name = "The suspect" if "suspect" in suspect.setting.roles else "The draft as shipped"
    words = f"{name} ({setting_words(suspect)})"
    if suspect.value is None or choice.value is None:
        return f"{words} could not be ranked: {suspect.reasons[0] if suspect.reasons else 'it was not measured'}."
    ratio = suspect.value.value / choice.value.value
    sentence = f"{words} reaches {ratio:.0%} of that value"
    if suspect.accept_length is not None and choice.accept_length is not None:
        sentence += (
            f", accept length {estimate_words(suspect.accept_length, 2)} against "
            f"{estimate_words(choice.accept_length, 2)}"
        )
    return sentence + "."


def _baseline_sentences(ranking: Ranking, choice: RankedSetting) -> list[str]:
    numbers = next((one for one in choice.loads if one.load == ranking.load), None)
    if numbers is None or numbers.speedup is None:
        return ["There is no baseline without speculation at its TP size to compare with."]
    words = f"{numbers.speedup.value:.2f} times [{numbers.speedup.low:.2f}, {numbers.speedup.high:.2f}]"
    sentences = [f"That is {words} the throughput without speculation on as many GPUs."]
    if numbers.speedup.high < 1:
        sentences.append("Speculation does not pay here: without it this server is faster.")
    elif numbers.over_best_baseline is not None and numbers.over_best_baseline < 1:
        sentences.append("A server without speculation at another TP size is faster still.")
    sentences += [f"The comparison is unfair: {reason}." for reason in numbers.unfair]
    return sentences


def caveats(ranking: Ranking) -> tuple[str, ...]:
    """What limits every number in the report."""
    rows = (*ranking.settings, *ranking.baselines)
    launches = [record.launch for row in rows for record in row.setting.measured if record.launch is not None]
    sentences = []
    if any(launch.stand_in_kernels for launch in launches):
        sentences.append(
            "Measured with CPU stand-ins for CUDA kernels: accept lengths hold, speeds say nothing about a GPU."
        )
    accelerators = sorted({launch.accelerator for launch in launches})
    if len(accelerators) > 1:
        sentences.append(f"Measured on different accelerators ({', '.join(accelerators)}): speeds do not compare.")
    sentences.append(f"Two launches of one setting differ by up to {ranking.noise}.")
    if ranking.drift is not None:
        sentences.append(f"Drift: {_drift_words(ranking, ranking.drift, ranking.objective)}.")
    elif ranking.baselines and all(row.launches < MIN_POINTS for row in ranking.baselines):
        sentences.append(
            f"Drift was not tested: no baseline was launched {MIN_POINTS} times (budget.baselines: {MIN_POINTS})."
        )
    sentences += [
        f"Drift of the output throughput at {load_words(at)}: {_drift_words(ranking, one, throughput_at(at))}."
        for at, one in ranking.other_drifts
    ]
    return tuple(sentences)


def _drift_words(ranking: Ranking, drift: Drift, objective: Objective) -> str:
    """The drift, and how much of the study it was not tested for."""
    rows = (*ranking.settings, *ranking.baselines)
    times = [one.at_unix_s for row in rows for one in launch_values(row.setting, objective)]
    outside = drift.outside(times)
    if not drift.significant or not outside:
        return str(drift)
    lie = "lies" if outside == 1 else "lie"
    return f"{drift}; {outside} of {len(times)} launches {lie} before or after these and may have drifted further"


def next_step(ranking: Ranking, suspect: RankedSetting | None, study: str, *, explained: bool = False) -> str:
    """The one thing to do now. `explained`: why the suspect is slower has been said already."""
    unset = _without_simulation(ranking)
    if unset is not None:
        return unset
    if not ranking.settings:
        return f"Run `specsweep resume {study}` to measure the first settings."
    if ranking.choice is None:
        return "Mend the reason above (the trials' `server.log` has the details), then run the study again."
    if ranking.untold:
        more = _prompts_to_tell(ranking)
        wanted = f"about {more} more prompts" if more else "more prompts or repeated launches"
        return f"The command below starts the best one so far; to tell it from the others, run again with {wanted}."
    return "Start the server with the command below" + _reservation(ranking, ranking.choice, suspect, study, explained)


def _reservation(
    ranking: Ranking, choice: RankedSetting, suspect: RankedSetting | None, study: str, explained: bool
) -> str:
    """How the advice to start the best setting goes on: what to do besides, and a full stop."""
    if suspect is not None and suspect.setting is not choice.setting and not explained:
        who = "the suspect" if "suspect" in suspect.setting.roles else "the draft as shipped"
        return f"; `specsweep isolate {study}` says why {who} is slower."
    if not choice.confirmed and choice.launches < 2:
        return ". It was measured on one launch: confirm it on a fresh one."
    if ranking.ties and ranking.noise.repeats and ranking.noise.relative > _NOISY:
        return (
            f". Launches differ by {ranking.noise.relative:.0%} here, which hides differences that matter: on a "
            "quieter machine, or with `repeats: 3` under a new name, ties may be told apart."
        )
    return "."


def _without_simulation(ranking: Ranking) -> str | None:
    """What to do where acceptance was simulated, or seems to have been; None when all is well."""
    if simulated(ranking) is not None:
        return "Take SGLANG_SIMULATE_ACC_LEN out of engine.env and run the study again under a new name to measure it."
    reasons = [reason for row in ranking.settings for reason in row.reasons]
    if any("simulated acceptance" in sentence for sentence in (*ranking.findings, *reasons)):
        return "Unset SGLANG_SIMULATE_ACC_LEN where the servers start and run the study again under a new name."
    return None


def _prompts_to_tell(ranking: Ranking) -> int | None:
    """How many more prompts the closest contender needs to be told from the best."""
    row = ranking.untold[0]
    comparison = row.against_best
    if comparison is None or row.value is None or row.value.count < 2:
        return None
    effect = Estimate(
        value=comparison.behind,
        low=comparison.behind - comparison.half_width,
        high=comparison.behind + comparison.half_width,
        count=row.value.count,
    )
    return effect_verdict(effect, ranking.noise.relative).more_prompts
