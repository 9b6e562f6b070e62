"""The titles under which the paper's appendix A shows a generated abstract."""

TITLES = (
    "A general reinforcement learning algorithm that masters chess, shogi, and Go through self-play",
    "Meta-world: A benchmark and evaluation for multi-task and meta reinforcement learning",
    "Negated LAMA: Birds cannot fly",
    "Acme: A Research Framework for Distributed Reinforcement Learning",
    "Language Models are Few-Shot Learners",
    "YOLOv4: Optimal Speed and Accuracy of Object Detection",
    "Jukebox: A Generative Model for Music",
    "End-to-End Object Detection with Transformers",
    "Backpropagation and the brain",
    "REALM: Retrieval-Augmented Language Model Pre-Training",
    "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks",
    "Deep Double Descent: Where Bigger Models and More Data Hurt",
    "Neural Architecture Search without Training",
    "Lite Transformer with Long-Short Range Attention",
    "PEGASUS: Pre-training with Extracted Gap-sentences for Abstractive Summarization",
    "DeepFaceLab: A simple, flexible and extensible face swapping framework",
    "Funnel-Transformer: Filtering out Sequential Redundancy for Efficient Language Processing",
    "FastBERT: a Self-distilling BERT with Adaptive Inference Time",
    "Knowledge Guided Text Retrieval and Reading for Open Domain Question Answering",
    "Big Transfer (BiT): General Visual Representation Learning",
)
