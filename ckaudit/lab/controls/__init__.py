"""Healthy trainings that look ill, in one file for each part of a training that they change."""
