"""The surface sampler on simulated servers: few measurements, TP sizes in order, fallbacks, distrust."""

from __future__ import annotations

import itertools
import statistics
import warnings
from dataclasses import replace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

from results.prediction import AcceptLengths, Measured, PredictedSetting, round_of
from results.step_samples import StepSample
from results.surface import legal_triples
from search_spaces.config import EngineConfig, Triple
from search_spaces.rulings import Illegal, Legal
from search_spaces.space import SearchSpace
from sweeps.legal_space import LegalSpace
from sweeps.surface_candidates import candidates_of, plain_candidates
from sweeps.surface_sampler import Prices, SurfaceSampler

SIZES = (2, 4, 8, 16, 32)
DRAFT_TOKENS = [2, 3, 4, 5, 6, 8, 16, 32]
LAYOUTS = ("0,3,7", "2,4,5")


def accept_length(triple: Triple, quality: float) -> float:
    chance = 1 - (1 - quality) ** triple.eagle_topk**0.5
    chain = sum(chance**depth for depth in range(1, triple.num_steps + 1))
    return 1 + chain * min(1.0, (triple.num_draft_tokens / (2 + triple.num_steps * triple.eagle_topk**0.6)) ** 0.35)


SETTINGS = [
    PredictedSetting(layout=layout, triple=triple, tp_size=tp_size)
    for layout in LAYOUTS
    for topk in (1, 2, 4)
    for triple in legal_triples(5, topk, SIZES)
    for tp_size in (1, 2)
]
LENGTHS = AcceptLengths(
    values={(s.layout, s.triple): accept_length(s.triple, 0.75 if s.layout == "0,3,7" else 0.5) for s in SETTINGS}
)


def throughput(setting: PredictedSetting, batch: float = 4.0) -> float:
    """Of another form than the model's default one: verifying is free up to 40 tokens, tp 2 costs more per step."""
    triple = setting.triple
    tokens = batch * triple.num_draft_tokens
    time = 8 + 0.9 * triple.num_steps + 0.05 * max(0.0, tokens - 40) + 0.02 * batch * triple.eagle_topk
    if setting.tp_size == 2:
        time = 0.6 * time + 0.3 * triple.num_steps
    return 1e3 * batch * LENGTHS.values[setting.layout, triple] / time


def suggest(trial: optuna.Trial) -> PredictedSetting:
    return PredictedSetting(
        layout=trial.suggest_categorical("layout", LAYOUTS),
        triple=Triple(
            num_steps=trial.suggest_int("num_steps", 1, 5),
            eagle_topk=trial.suggest_categorical("eagle_topk", [1, 2, 4]),
            num_draft_tokens=trial.suggest_categorical("num_draft_tokens", DRAFT_TOKENS),
        ),
        tp_size=trial.suggest_int("tp_size", 1, 2),
    )


def make(seed: int = 0, **options: object) -> tuple[optuna.Study, SurfaceSampler]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    values: dict[str, object] = {"batch": 4.0, "seed": seed}
    sampler = SurfaceSampler(LENGTHS, plain_candidates(SETTINGS), **(values | options))  # type: ignore[arg-type]
    return optuna.create_study(direction="maximize", sampler=sampler), sampler


@pytest.mark.parametrize("acquisition", ["expected_improvement", "thompson", "upper_bound"])
def test_finds_the_best_in_a_dozen_measurements(acquisition: str) -> None:
    study, sampler = make(acquisition=acquisition)
    noise = np.random.default_rng(1)
    study.optimize(lambda trial: throughput(suggest(trial)) * np.exp(0.003 * noise.standard_normal()), n_trials=12)
    best = max(throughput(setting) for setting in SETTINGS)
    assert study.best_value > 0.98 * best
    chosen = [tuple(trial.params.values()) for trial in study.trials]
    assert len(set(chosen)) == 12
    assert sampler.trust.trusted
    assert sampler.findings == []


@pytest.mark.parametrize("launch_s", [2.0, 20.0, 300.0])
def test_a_tp_size_is_left_once_and_not_before_little_is_left_there(launch_s: float) -> None:
    study, _ = make(prices=Prices(measure_s=30, switch_s=1, launch_s=launch_s))
    study.optimize(lambda trial: throughput(suggest(trial)), n_trials=14)
    sizes = [trial.params["tp_size"] for trial in study.trials]
    assert sum(before != after for before, after in itertools.pairwise(sizes)) == 1
    assert sizes.index(2) > 2


def test_without_switches_no_tp_size_is_kept_to() -> None:
    """Every setting is a launch: what tp 2 may bring is tried while tp 1 still has settings to improve on."""
    study, _ = make(prices=Prices(measure_s=30, switch_s=1, launch_s=300), switches=lambda: False)
    study.optimize(lambda trial: throughput(suggest(trial)), n_trials=8)
    assert study.trials[1].params["tp_size"] == 2


def test_once_switching_is_distrusted_no_tp_size_is_kept_to() -> None:
    """Trust is lost after the first setting, with the prices told before."""
    trusted = [True]
    study, _ = make(prices=Prices(measure_s=30, switch_s=1, launch_s=300), switches=lambda: trusted[0])
    study.optimize(lambda trial: throughput(suggest(trial)), n_trials=1)
    trusted[0] = False
    study.optimize(lambda trial: throughput(suggest(trial)), n_trials=1)
    assert [trial.params["tp_size"] for trial in study.trials] == [1, 2]


def test_a_dear_launch_is_put_off_and_not_repeated() -> None:
    study, _ = make(prices=Prices(measure_s=30, switch_s=1, launch_s=3000))
    study.optimize(lambda trial: throughput(suggest(trial)), n_trials=14)
    sizes = [trial.params["tp_size"] for trial in study.trials]
    assert sizes[0] == 1
    assert 2 in sizes
    assert sum(before != after for before, after in itertools.pairwise(sizes)) <= 2
    best = max(throughput(setting) for setting in SETTINGS)
    assert study.best_value > 0.98 * best


def rounds_at(batch: float, settings: list[PredictedSetting]) -> list[StepSample]:
    measured = [Measured(setting=setting, throughput=throughput(setting, batch)) for setting in settings]
    found = [round_of(one, LENGTHS, batch) for one in measured]
    return [sample for sample in found if sample is not None]


def test_rounds_at_other_loads_lead_the_first_choice() -> None:
    """Timed at batches of 1 and 8, never at 4: the first setting tried there is near the best of its TP size."""
    study, sampler = make()
    timed = [setting for setting in SETTINGS if setting.tp_size == 1 and setting.layout == LAYOUTS[1]][::4]
    for batch in (1.0, 8.0):
        sampler.learn(rounds_at(batch, timed))
    assert sampler.expected_gain(study) is None
    first = suggest(study.ask())
    assert first.tp_size == 1
    assert throughput(first) > 0.95 * max(throughput(s) for s in SETTINGS if s.tp_size == 1)


def test_a_prediction_knows_what_was_timed_before_it() -> None:
    study, sampler = make()
    for _ in range(3):
        trial = study.ask()
        study.tell(trial, throughput(suggest(trial)))
    before = sampler.comparisons(study)
    sampler.learn(rounds_at(8.0, SETTINGS[::9]), before=3)
    assert sampler.comparisons(study) == before
    trial = study.ask()
    study.tell(trial, throughput(suggest(trial)))
    assert sampler.comparisons(study)[: len(before)] == before


def test_running_and_failed_trials_are_not_proposed_again() -> None:
    study, sampler = make()
    first = study.ask()
    one = suggest(first)
    second = study.ask()
    two = suggest(second)
    assert one != two
    study.tell(first, state=TrialState.PRUNED)
    study.tell(second, throughput(two))
    seen = {one, two}
    for _ in range(4):
        trial = study.ask()
        setting = suggest(trial)
        assert setting not in seen
        seen.add(setting)
        study.tell(trial, throughput(setting))
    gain = sampler.expected_gain(study)
    assert gain is not None
    assert 0 <= gain < 0.5


def test_what_is_closed_is_neither_proposed_nor_hoped_for() -> None:
    """Only the worst ten settings may run: they are all that is proposed, and gains are not expected of better ones."""
    configs = {
        setting: EngineConfig(
            layout=tuple(map(int, setting.layout.split(","))), triple=setting.triple, tp_size=setting.tp_size
        )
        for setting in SETTINGS
    }
    worst = sorted(SETTINGS, key=throughput)[:10]
    opened = {configs[setting] for setting in worst}
    candidates = [replace(c, configs=(configs[c.setting],)) for c in plain_candidates(SETTINGS)]
    sampler = SurfaceSampler(LENGTHS, candidates, batch=4.0, is_open=opened.__contains__)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for left in range(len(worst), 0, -1):
        trial = study.ask()
        setting = suggest(trial)
        assert configs[setting] in opened
        opened.remove(configs[setting])
        study.tell(trial, throughput(setting))
        assert (sampler.expected_gain(study) is None) is (left == 1)
    # with every setting open much is left to gain
    opened |= set(configs.values())
    gain = sampler.expected_gain(study)
    assert gain is not None
    assert gain > 0.1


def test_all_that_may_run_is_covered_although_a_closed_setting_has_no_trace() -> None:
    config = EngineConfig(layout=(9,), triple=Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2), tp_size=1)
    untraced = PredictedSetting(layout="9", triple=Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2), tp_size=1)
    candidates = [*plain_candidates(SETTINGS), replace(plain_candidates([untraced])[0], configs=(config,))]
    assert not SurfaceSampler(LENGTHS, candidates).covers_all
    assert SurfaceSampler(LENGTHS, candidates, is_open=lambda it: it != config).covers_all
    assert SurfaceSampler(LENGTHS, plain_candidates(SETTINGS)).covers_all


def test_every_measurement_is_compared_with_its_prediction() -> None:
    study, sampler = make()
    study.optimize(lambda trial: throughput(suggest(trial)), n_trials=10)
    compared = sampler.comparisons(study)
    assert 7 <= len(compared) <= 9
    last = compared[-1].number
    assert sampler.comparisons(study, known=range(last)) == compared[-1:]
    assert np.mean([abs(c.relative_error) for c in compared[3:]]) < 0.05


def test_a_model_that_fails_is_reported_and_left() -> None:
    """Throughputs that have nothing to do with the surface."""
    study, sampler = make(seed=3)
    noise = np.random.default_rng(0)
    study.optimize(lambda trial: float(np.exp(noise.uniform(-3, 3))) * bool(suggest(trial)), n_trials=25)
    assert not sampler.trust.trusted
    assert sampler.trust.reason is not None
    assert "predictions missed by more than 10%" in sampler.trust.reason
    assert len(sampler.findings) == 1


def test_unknown_dimensions_are_left_to_the_fallback() -> None:
    """What TPE draws for the flag is luck, so several studies are judged together."""
    shares = [best_share_with_a_flag(seed) for seed in range(5)]
    assert statistics.mean(shares) > 0.95
    assert min(shares) > 0.9


def best_share_with_a_flag(seed: int) -> float:
    """The best throughput that 16 trials find, over the best there is, where one value of a flag is worth a quarter."""
    study, _ = make(seed=seed)

    def objective(trial: optuna.Trial) -> float:
        chunk = trial.suggest_categorical("flag.chunked_prefill_size", [512, 2048, 8192])
        return throughput(suggest(trial)) * (1.0 if chunk == 2048 else 0.8)

    study.optimize(objective, n_trials=16)
    assert {t.params["flag.chunked_prefill_size"] for t in study.trials} == {512, 2048, 8192}
    return study.best_value / max(throughput(setting) for setting in SETTINGS)


def test_without_a_surface_it_is_the_fallback() -> None:
    sampler = SurfaceSampler(AcceptLengths(values={}), plain_candidates(SETTINGS), seed=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_int("tp_size", 1, 2), n_trials=15)
    assert len(study.trials) == 15
    assert sampler.findings == [f"{len(SETTINGS)} of {len(SETTINGS)} settings are not covered by a trace: left to TPE"]


def test_minimising_is_left_to_the_fallback() -> None:
    sampler = SurfaceSampler(LENGTHS, plain_candidates(SETTINGS), seed=1)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        study.optimize(lambda trial: float(trial.suggest_int("num_steps", 1, 5)), n_trials=12)
    assert study.best_value == 1


def test_candidates_of_a_legal_space() -> None:
    space = SearchSpace(
        layout=("shipped", "default"), num_steps=(1, 2), eagle_topk=(1, 2), num_draft_tokens=(2, 3), tp_size=(1,)
    )

    def resolve(setting: object) -> Legal | Illegal:
        steps, topk, tokens = setting.num_steps, setting.eagle_topk, setting.num_draft_tokens  # type: ignore[attr-defined]
        tokens = steps + 1 if topk == 1 else tokens
        if tokens < steps + 1:
            return Illegal(rule="tokens_below_steps", message="no")
        triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
        effective = EngineConfig(layout=(2, 4, 5), triple=triple, tp_size=1)
        return Legal(effective=effective, ids=None, adjustments=())

    found = candidates_of(LegalSpace(space, resolve))
    assert len(found) == 2 * (2 + 2 + 2 + 1)
    assert {c.setting.layout for c in found} == {"2,4,5"}
    assert len({c.setting for c in found}) == 5
    assert all(len(c.configs) == 1 for c in found)
    flagged = candidates_of(LegalSpace(replace(space, flags=(("chunked_prefill_size", (512, 2048)),)), resolve))
    assert [c.params for c in flagged] == [c.params for c in found]
    assert all(len(c.configs) == 2 for c in flagged)
